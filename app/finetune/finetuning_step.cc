#include "app/finetune/finetuning_step.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <utility>

#include "app/device/determinism.h"
#include "app/finetune/distillation_losses.h"
#include "app/finetune/rerank_losses.h"
#include "app/profile/phase_range.h"
#include "app/system/errors.h"
#include "data/tasks/task_sequence.h"

namespace bert {
namespace {

/// Takes the embeddings and the first layers out of training.
void freeze(torch::nn::Module& module, const FinetuneConfig& config) {
  if (config.frozen_layers < 0) return;
  if (config.frozen_layers > config.model.num_hidden_layers) {
    throw ConfigError(fmt::format("frozen_layers: is {}, and the model of initial_checkpoint has {} layers",
                                  config.frozen_layers, config.model.num_hidden_layers));
  }
  if (config.distributed.shard_optimizer_state) {
    throw ConfigError(
        "frozen_layers: frozen weights have no owner in distributed.shard_optimizer_state; set it to false");
  }
  if (config.gradient_checkpointing) {
    throw ConfigError("frozen_layers: gradient_checkpointing recomputes layers that train; set it to false");
  }
  for (const auto& item : module.named_parameters()) {
    bool frozen = item.key().starts_with("bert.embeddings.");
    for (int64_t layer = 0; layer < config.frozen_layers && !frozen; ++layer) {
      frozen = item.key().starts_with(fmt::format("bert.encoder.layer.{}.", layer));
    }
    if (frozen) item.value().set_requires_grad(false);
  }
}

/// The model with its initial weights, in fp32 on the CPU.
TaskModel make_model(const FinetuneConfig& config, const TaskHead& head, c10::Device device) {
  use_deterministic_algorithms(device);
  const NoInitWeights no_init;
  TaskModel model(config.model, head.kind, head.num_outputs, head.sentence, head.start_markers, head.window_pooling);
  torch::nn::Module& module = *model.module();
  init_weights(module, config.model, static_cast<uint64_t>(config.seed));
  model.set_dropout_seed(config.seed);
  model.encoder().encoder->gradient_checkpointing = config.gradient_checkpointing;
  freeze(module, config);
  module.train();
  return model;
}

}  // namespace

FinetuningStep::FinetuningStep(const FinetuneConfig& config, const TaskHead& head, c10::Device device,
                               c10::intrusive_ptr<c10d::ProcessGroup> group)
    : FinetuningStep(config, head, make_model(config, head, device), device, std::move(group)) {}

FinetuningStep::FinetuningStep(const FinetuneConfig& config, const TaskHead& head, TaskModel model, c10::Device device,
                               c10::intrusive_ptr<c10d::ProcessGroup> group)
    : OptimizerStep(config, model.module(), device, std::move(group), {}),
      model_(std::move(model)),
      head_(head),
      dropout_seed_(config.seed),
      label_smoothing_(config.label_smoothing) {
  use_fp8(config, *model_.encoder().encoder);
  if (!head.class_weights.empty()) class_weights_ = torch::tensor(head.class_weights).to(device);
}

TappedOutput FinetuningStep::tapped_forward(const PackedBatch& batch, bool tap) {
  if (module().is_training()) seed_dropout(batch, dropout_seed_);
  const AutocastGuard autocast(device().type(), precision_);
  TappedOutput output = forward_with_taps(model_, batch, head_.choices, tap);
  output.logits = output.logits.to(torch::kFloat);
  return output;
}

torch::Tensor FinetuningStep::forward(const PackedBatch& batch) { return tapped_forward(batch, /*tap=*/false).logits; }

torch::Tensor FinetuningStep::loss(const torch::Tensor& logits, const PackedBatch& batch) const {
  if (head_.scores) return at::binary_cross_entropy_with_logits(logits.squeeze(-1), batch.labels);
  if (head_.kind == TaskKind::kRegression) return at::mse_loss(logits.view_as(batch.labels), batch.labels);
  if (head_.kind == TaskKind::kQuestionAnswering)
    return -at::log_softmax(answer_logits(logits, batch), -1).gather(2, batch.labels.unsqueeze(2)).mean();
  const auto weights = class_weights_.defined() ? c10::optional<torch::Tensor>(class_weights_) : c10::nullopt;
  if (head_.multi_label) {
    return at::binary_cross_entropy_with_logits(logits, batch.labels, /*weight=*/c10::nullopt, /*pos_weight=*/weights);
  }
  const torch::Tensor mean = at::cross_entropy_loss(logits, batch.labels, weights, at::Reduction::Mean,
                                                    /*ignore_index=*/kNoLabel, label_smoothing_);
  if (head_.kind != TaskKind::kTokenClassification) return mean;
  return at::where(batch.labels.ne(kNoLabel).any(), mean, at::zeros_like(mean));  // windows may lack a word's begin
}

torch::Tensor FinetuningStep::training_loss(const torch::Tensor& logits, const PackedBatch& batch) const {
  if (head_.passages == 1) return loss(logits, batch);
  const auto in_rows = [&](const torch::Tensor& of_sequences) { return of_sequences.view({-1, head_.passages}); };
  return rerank_loss(head_.rerank_loss, in_rows(logits), in_rows(batch.labels).select(1, 0));
}

void FinetuningStep::learn_embeddings(EmbeddingObjectiveConfig config, const ProcessGroupPtr& group,
                                      EmbeddingObjective::Encode teacher,
                                      const std::vector<std::vector<int64_t>>& unread_prompts) {
  for (const std::vector<int64_t>& ids : unread_prompts) model_.leave_out_prompt(torch::tensor(ids).to(device()));
  objective_ = std::make_unique<EmbeddingObjective>(std::move(config), group, model_.head(), std::move(teacher));
}

void FinetuningStep::prepare(std::span<const PackedBatch> micro_batches, int64_t of_all_ranks) {
  if (!objective_) return;
  const PhaseRange phase(Phase::kForward);
  objective_->prepare(micro_batches, of_all_ranks, [this](const PackedBatch& batch) { return forward(batch); });
}

std::vector<torch::Tensor> FinetuningStep::loss_terms(const PackedBatch& batch) {
  if (objective_) return {objective_->loss(batch, forward(batch))};
  if (!distillation_) return {training_loss(forward(batch), batch)};
  const TappedOutput output = tapped_forward(batch, distillation_->taps());
  return distillation_->losses(batch, output, training_loss(output.logits, batch), head_.choices);
}

std::vector<std::string> FinetuningStep::loss_names() const {
  return distillation_ ? distillation_->names() : std::vector<std::string>();
}

torch::Tensor FinetuningStep::labels_of(const PackedBatch& batch) const {
  if (head_.kind == TaskKind::kRegression || head_.kind == TaskKind::kQuestionAnswering || head_.multi_label)
    return known_items(batch.labels.size(0));
  const torch::Tensor labelled = batch.labels.ne(kNoLabel);
  if (!class_weights_.defined()) return labelled.sum(torch::kDouble);
  const torch::Tensor classes = batch.labels.clamp_min(0);  // any class where there is no label
  return class_weights_.index_select(0, classes).mul(labelled).sum(torch::kDouble);
}

std::vector<torch::Tensor> FinetuningStep::loss_items(const PackedBatch& batch) const {
  if (objective_) return {known_items(1)};
  const torch::Tensor labels =
      head_.passages > 1 ? known_items(batch.num_sequences() / head_.passages) : labels_of(batch);
  if (!distillation_) return {labels};
  return distillation_->items(
      batch,
      {.labels = labels, .sequences = known_items(batch.num_sequences()), .tokens = known_items(batch.num_tokens())});
}

}  // namespace bert
