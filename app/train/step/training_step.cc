#include "app/train/step/training_step.h"

#include <torch/types.h>

#include <utility>

#include "app/device/determinism.h"

namespace bert {
namespace {

/// The model with its initial weights, in fp32 on the CPU.
BertForPreTraining make_model(const PretrainConfig& config, c10::Device device) {
  use_deterministic_algorithms(device);
  const NoInitWeights no_init;
  BertForPreTraining model(config.model, has_pairs(objective_of(config)));
  init_weights(*model, config.model, static_cast<uint64_t>(config.seed));
  model->dropout_seed = config.seed;
  model->bert->encoder->gradient_checkpointing = config.gradient_checkpointing;
  model->train();
  return model;
}

}  // namespace

TrainingStep::TrainingStep(const PretrainConfig& config, c10::Device device,
                           c10::intrusive_ptr<c10d::ProcessGroup> group, std::optional<c10::ScalarType> weights)
    : TrainingStep(config, make_model(config, device), device, std::move(group), weights) {}

TrainingStep::TrainingStep(const PretrainConfig& config, BertForPreTraining made, c10::Device device,
                           c10::intrusive_ptr<c10d::ProcessGroup> group, std::optional<c10::ScalarType> weights)
    : OptimizerStep(config, made.ptr(), device, std::move(group), weights),
      model(std::move(made)),
      vocab_size_(config.model.vocab_size),
      pairs_(has_pairs(objective_of(config)) ? name_of_value(objective_of(config)) : "") {
  use_fp8(config, *model->bert->encoder);
}

PretrainingOutput TrainingStep::forward(const PackedBatch& batch) {
  if (model->is_training()) seed_dropout(batch, model->dropout_seed);
  const AutocastGuard autocast(device().type(), precision_);
  return model->forward(batch);
}

std::vector<torch::Tensor> TrainingStep::loss_terms(const PackedBatch& batch) {
  // forward() has ended autocast: the loss and backward run outside of it.
  const PretrainingLoss part = pretraining_loss(forward(batch), batch, vocab_size_);
  if (extra_sums_.defined()) extra_sums_.index_add_(0, batch.masked_sources, part.mlm_of_tokens.to(torch::kDouble));
  return {part.mlm, part.nsp};
}

std::vector<torch::Tensor> TrainingStep::loss_items(const PackedBatch& batch) const {
  return {known_items(batch.num_masked() - batch.padding.masked),
          known_items(batch.num_sequences() - batch.padding.sequences)};
}

std::vector<std::string> TrainingStep::loss_names() const {
  if (pairs_.empty()) return {"mlm"};
  return {"mlm", pairs_};
}

TrainingStep::MeanLoss TrainingStep::take_mean_loss() {
  MeanTerms means = take_mean_terms();
  if (means.terms.empty()) return {.mlm = 0, .nsp = 0, .mlm_sums = std::move(means.sums)};
  return {.mlm = means.terms[0], .nsp = means.terms[1], .mlm_sums = std::move(means.sums)};
}

void TrainingStep::sum_losses_by_source(int64_t sources) {
  extra_sums_ = torch::zeros({sources}, torch::TensorOptions().dtype(torch::kDouble).device(device()));
}

}  // namespace bert
