#include "app/train/step/optimizer_step.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>

#include "app/device/determinism.h"
#include "app/distributed/process_group.h"
#include "app/profile/phase_range.h"
#include "app/system/errors.h"
#include "cuda_ext/compat.h"
#include "cuda_ext/multi_tensor.h"
#include "model/bert.h"
#include "model/state_dict.h"
#include "optim/sharded_optimizer.h"

namespace bert {
namespace {

std::vector<int> owners_of(const RunConfig& config, const std::vector<NamedParameter>& parameters,
                           const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  if (!group || !config.distributed.shard_optimizer_state) return {};
  check_sharding(static_cast<int64_t>(parameters.size()), group->getSize());
  return assign_owners(parameters, group->getSize());
}

StateDict on_cpu(const StateDict& state) {
  StateDict copies;
  for (const auto& item : state)
    copies.insert(item.key(), item.value().detach().to(torch::kCPU, /*non_blocking=*/false, /*copy=*/true));
  return copies;
}

/// Copies the values, which may be fewer.
void overwrite(const StateDict& state, const StateDict& values) {
  const torch::NoGradGuard no_grad;
  for (const auto& item : values) torch::Tensor(state[item.key()]).copy_(item.value());
}

/// The name of the first tensor of `state` whose bits are not those of `expected`, which is on the CPU; "" if there is
/// none.
std::string first_difference(const StateDict& state, const StateDict& expected) {
  for (const auto& item : state) {
    const torch::Tensor got = item.value().detach().to(torch::kCPU).contiguous(),
                        want = expected[item.key()].contiguous();
    if (std::memcmp(got.const_data_ptr(), want.const_data_ptr(), want.nbytes()) != 0) return item.key();
  }
  return "";
}

/// Throws ConfigError if a CUDA device lacks products in FP8, at all or for the sizes of the model.
void check_fp8(const BertConfig& model, c10::Device device) {
  constexpr int kFirst = 89, kTen = 10;  // Ada; Hopper is 90
  constexpr int64_t kMultiple = 16;
  if (!device.is_cuda()) return;
  if (const int capability = compat::compute_capability(device); capability < kFirst) {
    throw ConfigError(fmt::format("precision fp8: {} has compute capability {}.{}, expected at least 8.9; use bf16",
                                  compat::device_name(device), capability / kTen, capability % kTen));
  }
  for (const auto& [name, size] :
       {std::pair{"hidden_size", model.hidden_size}, {"intermediate_size", model.intermediate_size}}) {
    if (size % kMultiple == 0) continue;
    throw ConfigError(fmt::format("precision fp8: model.{} is {}, expected a multiple of {} on CUDA; use bf16", name,
                                  size, kMultiple));
  }
}

}  // namespace

OptimizerStep::Parts OptimizerStep::make_parts(const RunConfig& config, std::shared_ptr<torch::nn::Module> module,
                                               c10::Device device, const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                               std::optional<c10::ScalarType> weights) {
  const c10::ScalarType dtype = weights.value_or(weights_dtype(config.precision));
  Parts parts{.module = std::move(module), .parameters = {}, .owners = {}, .initial = StateDict()};
  if (dtype == torch::kBFloat16 || dtype == torch::kHalf) {
    for (const auto& item : state_dict(*parts.module)) parts.initial.insert(item.key(), item.value().clone());
  }
  parts.module->to(device, dtype);
  parts.parameters = named_parameters(*parts.module);
  parts.owners = owners_of(config, parts.parameters, group);
  return parts;
}

OptimizerStep::OptimizerStep(const RunConfig& config, std::shared_ptr<torch::nn::Module> module, c10::Device device,
                             c10::intrusive_ptr<c10d::ProcessGroup> group, std::optional<c10::ScalarType> weights)
    : OptimizerStep(config, device, group, make_parts(config, std::move(module), device, group, weights)) {}

OptimizerStep::OptimizerStep(const RunConfig& config, c10::Device device, c10::intrusive_ptr<c10d::ProcessGroup> group,
                             Parts parts)
    : module_(std::move(parts.module)),
      optimizer(parts.owners.empty() ? make_optimizer(config.optimizer, parts.parameters)
                                     : make_sharded_optimizer(group, config.optimizer, parts.parameters, parts.owners)),
      scaler(config.amp, device, needs_loss_scale(config.precision)),
      precision_(config.precision),
      device_(device),
      seed_(config.seed),
      optimizer_config_(config.optimizer),
      amp_config_(config.amp),
      average_items_(config.optimizer.average == GradientAverage::kMaskedTokens),
      schedule_(make_schedule(config.schedule, config.optimizer.lr, config.max_steps)),
      group_(std::move(group)),
      parameters_(std::move(parts.parameters)),
      owners_(parts.owners),
      parallel_(
          group_, parameters_,
          {.compression = config.distributed.compression, .mean_over_ranks = false, .owners = std::move(parts.owners)}),
      parameter_report_(describe(group_parameters(parameters_, config.optimizer))),
      learning_rate_(torch::zeros({}, torch::TensorOptions().device(device))) {
  if (device.is_cuda()) copies_.emplace(device);
  set_matmul_precision(precision_);
  optimizer->set_masters(parts.initial);
}

void OptimizerStep::use_fp8(const RunConfig& config, BertEncoderImpl& encoder) {
  if (config.precision != Precision::kFp8) return;
  check_fp8(config.model, device_);
  const int64_t layers = config.model.num_hidden_layers, in_bf16 = (layers - config.fp8_layers()) / 2;  // at each end
  if (config.fp8_layers() == 0) {
    throw ConfigError(fmt::format(
        "first_last_layers_bf16: the model has {} layers, so none is left in FP8; use precision bf16", layers));
  }
  constexpr int64_t kProducts = 4;  // of a layer
  fp8_.emplace(layers * kProducts, device_);
  encoder.fp8.resize(static_cast<size_t>(layers));
  for (int64_t layer = in_bf16; layer < layers - in_bf16; ++layer) {
    const int64_t first = layer * kProducts;
    encoder.fp8[static_cast<size_t>(layer)] = {.qkv = fp8_->scaling(first),
                                               .attention_output = fp8_->scaling(first + 1),
                                               .intermediate = fp8_->scaling(first + 2),
                                               .output = fp8_->scaling(first + 3)};
  }
}

void OptimizerStep::seed_dropout(const PackedBatch& batch, int64_t seed) const {
  if (device_.is_cuda())
    seed_for_micro_batch(at::globalContext().defaultGenerator(device_), seed, batch.first_sequence);
}

torch::Tensor OptimizerStep::sum_over_ranks(torch::Tensor tensor) const {
  if (!group_) return tensor;
  const torch::Tensor sum = tensor.to(device_, /*non_blocking=*/false, /*copy=*/true);
  all_reduce(group_, sum);
  return sum.to(torch::kCPU);
}

int64_t OptimizerStep::sum_over_ranks(int64_t value) const {
  return sum_over_ranks(torch::tensor({value}, torch::kInt64)).item<int64_t>();
}

torch::Tensor OptimizerStep::known_items(int64_t count) const {
  return torch::full({}, static_cast<double>(count), torch::TensorOptions().dtype(torch::kDouble).device(device_));
}

torch::Tensor OptimizerStep::loss_weights(std::span<const PackedBatch> micro_batches, int64_t of_all_ranks) const {
  // The reduction adds up over ranks. So a weight is a share of the global batch, and gradients overflow in the same
  // way on any number of ranks.
  if (!average_items_) {
    const double equal = 1.0 / static_cast<double>(of_all_ranks);
    return torch::full({1}, equal, torch::TensorOptions().dtype(torch::kFloat).device(device_));
  }
  std::vector<torch::Tensor> items;
  for (const PackedBatch& batch : micro_batches) {
    for (torch::Tensor& of_term : loss_items(batch)) items.push_back(std::move(of_term));
  }
  const torch::Tensor of_rank = torch::stack(items).view({static_cast<int64_t>(micro_batches.size()), -1});
  const torch::Tensor totals = of_rank.sum(0).to(torch::kFloat);  // exact up to 2^24
  all_reduce(group_, totals);
  return of_rank.to(torch::kFloat) * totals.clamp_min(1.0).reciprocal();
}

void OptimizerStep::run(std::span<const PackedBatch> micro_batches, int64_t of_all_ranks) {
  if (of_all_ranks == 0) of_all_ranks = static_cast<int64_t>(micro_batches.size()) * parallel_.world_size();
  const torch::Tensor weights = loss_weights(micro_batches, of_all_ranks);
  parallel_.zero_gradients();
  prepare(micro_batches, of_all_ranks);
  for (size_t micro = 0; micro < micro_batches.size(); ++micro) {
    const PackedBatch& batch = micro_batches[micro];
    const torch::Tensor of_micro = weights.dim() == 1 ? weights : weights[static_cast<int64_t>(micro)];
    // The last micro-step's backward overlaps with the communication, unless it is in a graph.
    parallel_.expect_reduction(!replays_ && micro + 1 == micro_batches.size());
    if (replays_ && graphs_->usable()) {
      graphs_->micro_step(
          batch, of_micro, [&] { seed_dropout(batch, seed_); },
          [this](const PackedBatch& b, const torch::Tensor& w) { micro_step(b, w); });
    } else {
      micro_step(batch, of_micro);
    }
  }
  ++steps_;
  {
    const PhaseRange phase(Phase::kReduction);
    if (replays_) parallel_.expect_reduction(true);
    parallel_.finish();  // gradients are views into the buckets: they are zeroed in place
    if (fp8_) all_reduce(group_, fp8_->amaxes(), c10d::ReduceOp::MAX);
  }
  const PhaseRange phase(Phase::kUpdate);
  if (replays_ && graphs_->usable()) {
    graphs_->update([this] { update(); });
  } else {
    update();
  }
}

void OptimizerStep::micro_step(const PackedBatch& batch, const torch::Tensor& weights) {
  std::optional<PhaseRange> phase(Phase::kForward);
  std::vector<torch::Tensor> terms = loss_terms(batch);
  phase.emplace(Phase::kBackward);
  torch::Tensor total;
  for (size_t i = 0; i < terms.size(); ++i) {
    terms[i] = terms[i] * weights[weights.numel() == 1 ? 0 : static_cast<int64_t>(i)];
    total = i == 0 ? terms[i] : total + terms[i];
  }
  scaler.scale(total).backward();
  for (torch::Tensor& term : terms) term = term.detach();
  const torch::Tensor sums = torch::stack(terms);
  if (!loss_sum_.defined()) loss_sum_ = torch::zeros_like(sums);
  loss_sum_.add_(sums);
}

void OptimizerStep::update() {
  ops::learning_rate_out(schedule_, optimizer->applied_steps(), learning_rate_);
  scaler.step(*optimizer, learning_rate_);
  scaler.update();
  if (fp8_) fp8_->update();
}

void OptimizerStep::run(GlobalStep step) {
  const bool with_graphs = graphs_ && graphs_->usable();
  std::optional<StepGraphs::OnStream> on;
  if (with_graphs) on.emplace(*graphs_);
  if (copies_) copies_->begin(step);
  if (with_graphs && !replays_) {
    compare_graphs(step);
  } else {
    replays_ = with_graphs;
    run(step.micro_batches, step.of_all_ranks);
  }
  if (copies_) copies_->end();
}

void OptimizerStep::use_graphs(bool required, std::function<void(const std::string&)> say) {
  graphs_ = std::make_unique<StepGraphs>(device_, required, std::move(say));
}

StateDict OptimizerStep::step_state() const {
  StateDict state = state_dict(*module_);
  for (const auto& item : optimizer_state()) state.insert(item.key(), item.value());
  if (fp8_) state.insert("greatest values in FP8", fp8_->amaxes());
  state.insert("loss scale", scaler.current_scale());
  state.insert("inverse loss scale", scaler.inv_scale());
  state.insert("growth tracker", scaler.growth_tracker());
  state.insert("skipped steps", scaler.consecutive_skips());
  state.insert("learning rate", learning_rate_);
  for (size_t i = 0; i < parallel_.buffers().size(); ++i)
    state.insert("gradients " + std::to_string(i), parallel_.buffers()[i]);
  if (extra_sums_.defined()) state.insert("losses by source", extra_sums_);
  if (loss_sum_.defined()) state.insert("losses", loss_sum_);
  return state;
}

void OptimizerStep::compare_graphs(const GlobalStep& step) {
  const bool first = !loss_sum_.defined();
  const StateDict before = on_cpu(step_state());
  run(step.micro_batches, step.of_all_ranks);
  const StateDict eager = on_cpu(step_state());
  overwrite(step_state(), before);
  if (first) loss_sum_.zero_();
  --steps_;
  compat::release_cached_memory();
  replays_ = true;
  run(step.micro_batches, step.of_all_ranks);
  const std::string different = graphs_->usable() ? first_difference(step_state(), eager) : "";
  if (graphs_->usable() && different.empty()) return;
  replays_ = false;
  overwrite(step_state(), eager);
  if (!different.empty()) graphs_->fail("a step with graphs leaves other bits than one without in " + different);
}

void OptimizerStep::load(const StateDict& weights, const StateDict& optimizer_state) {
  constexpr size_t kMessageBytes = size_t{25} << 20;  // like a bucket of gradients
  load_state_dict(*module_, weights);
  parallel_.broadcast_parameters();  // the owners of a sharded state send their parameters
  StateDict of_optimizer;
  for (const auto& item : optimizer_state) {
    if (!is_fp8_state(item.key())) of_optimizer.insert(item.key(), item.value());
  }
  optimizer->load_state_dict(of_optimizer);
  std::vector<torch::Tensor> live;
  for (const auto& item : fp8_ ? fp8_->state_dict() : StateDict()) {
    const torch::Tensor* const given = optimizer_state.find(item.key());
    TORCH_CHECK_VALUE(given == nullptr || given->sizes() == item.value().sizes(), item.key(), ": expected ",
                      item.value().sizes(), ", got ", given->sizes());
    if (given != nullptr && !given->is_meta()) item.value().copy_(*given);
    live.push_back(item.value());
  }
  if (!group_) return;
  if (owners_.empty()) {  // the owners of a sharded state have theirs
    for (const auto& item : optimizer->state_dict()) live.push_back(item.value());
  }
  if (!live.empty()) c10d::broadcast_coalesced(group_, live, kMessageBytes, /*rank=*/0);
}

StateDict OptimizerStep::optimizer_state() const {
  StateDict state = optimizer->state_dict();
  if (fp8_) state.update(fp8_->state_dict());
  return state;
}

void OptimizerStep::start_phase(const EarlierRun& earlier) {
  const NextPhase next = next_phase(optimizer_config_, parameters_, earlier);
  load(next.weights, next.optimizer_state);
}

void OptimizerStep::check_progress() const {
  try {
    scaler.check_progress(*optimizer);
  } catch (const c10::Error& error) {
    throw ConfigError(error.what_without_backtrace());
  }
}

OptimizerStep::MeanTerms OptimizerStep::take_mean_terms() {
  const int64_t terms = loss_sum_.defined() ? loss_sum_.numel() : 0;
  torch::Tensor sums = torch::zeros({0}, torch::kDouble);
  if (loss_sum_.defined()) sums = loss_sum_.to(torch::kCPU, torch::kDouble, /*non_blocking=*/false, /*copy=*/true);
  if (extra_sums_.defined()) sums = torch::cat({sums, extra_sums_.to(torch::kCPU)});
  sums = sum_over_ranks(sums);
  const double steps = std::max(steps_, 1.0);
  if (loss_sum_.defined()) loss_sum_.zero_();
  if (extra_sums_.defined()) extra_sums_.zero_();
  steps_ = 0;
  const auto* sum = sums.const_data_ptr<double>();
  MeanTerms means{.terms = {sum, sum + terms}, .sums = {sum + terms, sum + sums.numel()}};
  for (double& term : means.terms) term /= steps;
  return means;
}

void OptimizerStep::broadcast_parameters() {
  parallel_.broadcast_parameters();
  check_parameters();
}

void OptimizerStep::check_parameters() const {
  if (const auto difference = parallel_.first_difference()) {
    throw PeerError("the ranks' weights are no longer the same: " + *difference +
                    ". Memory, a network card or a library differs between machines; go on from the last checkpoint "
                    "without that machine.");
  }
}

int64_t OptimizerStep::applied_steps() const { return optimizer->applied_steps().item<int64_t>(); }

int64_t OptimizerStep::consecutive_skips() const {
  return static_cast<int64_t>(scaler.consecutive_skips().item<float>());
}

bool OptimizerStep::has_whole_gradient(const std::string& parameter) const {
  if (owners_.empty()) return true;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].name == parameter) return owners_[i] == parallel_.rank();
  }
  return false;
}

double OptimizerStep::last_loss_scale() const {
  if (!scaler.enabled()) return 1.0;
  const auto scale = scaler.current_scale().item<double>();
  if (!amp_config_.dynamic || scaler.growth_tracker().item<int64_t>() != 0) return scale;
  // The counter is 0 after a change of the scale: it has grown, or fallen if the step was skipped.
  const bool skipped = scaler.consecutive_skips().item<float>() > 0;
  return scale / (skipped ? amp_config_.backoff_factor : amp_config_.growth_factor);
}

double OptimizerStep::last_learning_rate() const { return learning_rate_.item<double>(); }

}  // namespace bert
