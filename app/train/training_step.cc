#include "app/train/training_step.h"

#include <torch/types.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>

#include "app/distributed/process_group.h"
#include "app/system/error_report.h"
#include "app/system/errors.h"
#include "app/train/determinism.h"
#include "cuda_ext/multi_tensor.h"
#include "model/state_dict.h"
#include "optim/sharded_optimizer.h"

namespace bert {
namespace {

std::vector<int> owners_of(const PretrainConfig& config, const std::vector<NamedParameter>& parameters,
                           const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  if (!group || !config.distributed.shard_optimizer_state) return {};
  check_sharding(static_cast<int64_t>(parameters.size()), group->getSize());
  return assign_owners(parameters, group->getSize());
}

BertForPreTraining make_model(const PretrainConfig& config, c10::Device device, c10::ScalarType weights) {
  use_deterministic_algorithms(device);
  const NoInitWeights no_init;
  BertForPreTraining model(config.model, has_pairs(objective_of(config)));
  init_weights(*model, config.model, static_cast<uint64_t>(config.seed));
  model->dropout_seed = config.seed;
  model->bert->encoder->gradient_checkpointing = config.gradient_checkpointing;
  model->to(device, weights);
  model->train();
  return model;
}

}  // namespace

TrainingStep::Parts TrainingStep::make_parts(const PretrainConfig& config, c10::Device device,
                                             const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                             std::optional<c10::ScalarType> weights) {
  const c10::ScalarType dtype = weights.value_or(weights_dtype(parse_precision(config.precision)));
  Parts parts{.model = make_model(config, device, dtype), .parameters = {}, .owners = {}};
  parts.parameters = named_parameters(*parts.model);
  parts.owners = owners_of(config, parts.parameters, group);
  return parts;
}

TrainingStep::TrainingStep(const PretrainConfig& config, c10::Device device,
                           c10::intrusive_ptr<c10d::ProcessGroup> group, std::optional<c10::ScalarType> weights)
    : TrainingStep(config, device, group, make_parts(config, device, group, weights)) {}

TrainingStep::TrainingStep(const PretrainConfig& config, c10::Device device,
                           c10::intrusive_ptr<c10d::ProcessGroup> group, Parts parts)
    : model(std::move(parts.model)),
      optimizer(parts.owners.empty() ? make_optimizer(config.optimizer, parts.parameters)
                                     : make_sharded_optimizer(group, config.optimizer, parts.parameters, parts.owners)),
      scaler(config.amp, device, needs_loss_scale(parse_precision(config.precision))),
      precision_(parse_precision(config.precision)),
      vocab_size_(config.model.vocab_size),
      device_(device),
      optimizer_config_(config.optimizer),
      average_masked_tokens_(config.optimizer.average == "masked_tokens"),
      schedule_(make_schedule(config.schedule, config.optimizer.lr, config.max_steps)),
      group_(std::move(group)),
      parameters_(std::move(parts.parameters)),
      sharded_(!parts.owners.empty()),
      parallel_(group_, parameters_,
                {.bucket_bytes = config.distributed.bucket_mb << 20,
                 .compression = parse_gradient_compression(config.distributed.compression),
                 .mean_over_ranks = false,
                 .owners = std::move(parts.owners)}),
      parameter_report_(describe(group_parameters(parameters_, config.optimizer))),
      learning_rate_(torch::zeros({}, torch::TensorOptions().device(device))),
      loss_sum_(torch::zeros({2}, torch::TensorOptions().device(device))) {
  set_matmul_precision(precision_);
}

PretrainingOutput TrainingStep::forward(const PackedBatch& batch) {
  if (device_.is_cuda() && model->is_training()) {
    seed_for_micro_batch(at::globalContext().defaultGenerator(device_), model->dropout_seed, batch.first_sequence);
  }
  const AutocastGuard autocast(device_.type(), precision_);
  return model->forward(batch);
}

PretrainingLoss TrainingStep::loss(const PackedBatch& batch) {
  return pretraining_loss(forward(batch), batch,
                          vocab_size_);  // forward() has ended autocast: the loss and backward run outside of it
}

torch::Tensor TrainingStep::sum_over_ranks(torch::Tensor tensor) const {
  if (!group_) return tensor;
  const torch::Tensor sum = tensor.to(device_, /*non_blocking=*/false, /*copy=*/true);
  all_reduce(group_, sum);
  return sum.to(torch::kCPU);
}

int64_t TrainingStep::sum_over_ranks(int64_t value) const {
  return sum_over_ranks(torch::tensor({value}, torch::kInt64)).item<int64_t>();
}

TrainingStep::LossWeights TrainingStep::loss_weights(std::span<const PackedBatch> micro_batches, int64_t of_all_ranks) {
  const auto scalar = [this](double value) {
    return torch::full({}, value, torch::TensorOptions().dtype(torch::kFloat).device(device_));
  };
  // The reduction adds up over ranks. So a weight is a share of the global batch, and gradients overflow in the same
  // way on any number of ranks.
  const torch::Tensor equal = scalar(1.0 / static_cast<double>(of_all_ranks));
  LossWeights weights{.nsp = std::vector<torch::Tensor>(micro_batches.size(), equal),
                      .mlm = std::vector<torch::Tensor>(micro_batches.size(), equal)};
  if (!average_masked_tokens_) return weights;
  double sequences = 0, masked = 0;
  for (const PackedBatch& batch : micro_batches) {
    sequences += static_cast<double>(batch.num_sequences());
    masked += static_cast<double>(batch.num_masked());
  }
  const torch::Tensor totals = torch::stack({scalar(sequences), scalar(masked)});  // exact in fp32 up to 2^24
  all_reduce(group_, totals);
  const torch::Tensor all = totals.clamp_min(1.0);
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    weights.nsp[i] = static_cast<double>(micro_batches[i].num_sequences()) / all[0];
    weights.mlm[i] = static_cast<double>(micro_batches[i].num_masked()) / all[1];
  }
  return weights;
}

void TrainingStep::run(std::span<const PackedBatch> micro_batches, int64_t of_all_ranks) {
  if (of_all_ranks == 0) of_all_ranks = static_cast<int64_t>(micro_batches.size()) * parallel_.world_size();
  const LossWeights weights = loss_weights(micro_batches, of_all_ranks);
  parallel_.zero_gradients();
  for (size_t micro = 0; micro < micro_batches.size(); ++micro) {
    set_phase(Phase::kForward);
    const PretrainingLoss part = loss(micro_batches[micro]);
    set_phase(Phase::kBackward);
    parallel_.expect_reduction(micro + 1 ==
                               micro_batches.size());  // the last micro-step's backward overlaps with the communication
    const torch::Tensor mlm = part.mlm * weights.mlm[micro], nsp = part.nsp * weights.nsp[micro];
    scaler.scale(mlm + nsp).backward();
    loss_sum_.add_(torch::stack({mlm.detach(), nsp.detach()}));
    if (source_sums_.defined()) {
      source_sums_.index_add_(0, micro_batches[micro].masked_sources, part.mlm_of_tokens.to(torch::kDouble));
    }
  }
  ++steps_;
  set_phase(Phase::kReduction);
  parallel_.finish();  // gradients are views into the buckets: they are zeroed in place
  set_phase(Phase::kUpdate);
  ops::learning_rate_out(schedule_, optimizer->applied_steps(), learning_rate_);
  scaler.step(*optimizer, learning_rate_);
  scaler.update();
}

void TrainingStep::load(const StateDict& weights, const StateDict& optimizer_state) {
  constexpr size_t kMessageBytes = size_t{25} << 20;  // like a bucket of gradients
  load_state_dict(*model, weights);
  parallel_.broadcast_parameters();  // the owners of a sharded state send their parameters
  optimizer->load_state_dict(optimizer_state);
  if (!group_ || sharded_) return;
  std::vector<torch::Tensor> live;
  for (const auto& item : optimizer->state_dict()) live.push_back(item.value());
  c10d::broadcast_coalesced(group_, live, kMessageBytes, /*rank=*/0);
}

void TrainingStep::start_phase(const EarlierRun& earlier) {
  const NextPhase next = next_phase(optimizer_config_, parameters_, earlier);
  load(next.weights, next.optimizer_state);
}

void TrainingStep::check_progress() const {
  try {
    scaler.check_progress(*optimizer);
  } catch (const c10::Error& error) {
    throw ConfigError(error.what_without_backtrace());
  }
}

TrainingStep::MeanLoss TrainingStep::take_mean_loss() {
  torch::Tensor sums = loss_sum_.to(torch::kCPU, torch::kDouble);
  if (source_sums_.defined()) sums = torch::cat({sums, source_sums_.to(torch::kCPU)});
  sums = sum_over_ranks(sums);
  const double steps = std::max(steps_, 1.0);
  loss_sum_.zero_();
  if (source_sums_.defined()) source_sums_.zero_();
  steps_ = 0;
  const auto* sum = sums.const_data_ptr<double>();
  return {.mlm = sum[0] / steps, .nsp = sum[1] / steps, .mlm_sums = {sum + 2, sum + sums.numel()}};
}

void TrainingStep::tell_sources_apart(int64_t sources) {
  source_sums_ = torch::zeros({sources}, torch::TensorOptions().dtype(torch::kDouble).device(device_));
}

void TrainingStep::broadcast_parameters() {
  parallel_.broadcast_parameters();
  check_parameters();
}

void TrainingStep::check_parameters() const {
  if (const auto difference = parallel_.first_difference()) {
    throw PeerError("the ranks' weights are no longer the same: " + *difference +
                    ". Memory, a network card or a library differs between machines; go on from the last checkpoint "
                    "without that machine.");
  }
}

int64_t TrainingStep::applied_steps() const { return optimizer->applied_steps().item<int64_t>(); }

int64_t TrainingStep::consecutive_skips() const {
  return static_cast<int64_t>(scaler.consecutive_skips().item<float>());
}

double TrainingStep::last_learning_rate() const { return learning_rate_.item<double>(); }

}  // namespace bert
