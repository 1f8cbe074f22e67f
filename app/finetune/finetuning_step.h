// One optimizer step of fine-tuning: a BERT with the head of a task, and its loss.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/config/finetune_config.h"
#include "app/finetune/distillation.h"
#include "app/finetune/embedding_objective.h"
#include "app/inference/task_model.h"
#include "app/train/step/optimizer_step.h"
#include "data/tasks/task_definition.h"

namespace bert {

struct TaskHead {
  TaskKind kind = TaskKind::kClassification;
  int64_t num_outputs = 1;           // TaskDefinition::num_outputs()
  int64_t choices = 1;               // sequences of one example
  std::vector<float> class_weights;  // of the classes in the loss, or of the yes of labels; empty: all 1
  SentenceEncoder sentence = {};     // of embeddings
  bool scores = false;               // TaskDefinition::scores
  bool multi_label = false;          // TaskDefinition::multi_label
  int64_t passages = 1;              // sequences of a training example with one rerank_loss; 1: pairs
  RerankLoss rerank_loss = RerankLoss::kBinaryCrossEntropy;
  bool start_markers = false;  // TaskFeatures::start_markers
  WindowPooling window_pooling = WindowPooling::kMean;

  /// Sequences of a training example.
  [[nodiscard]] int64_t unit() const { return choices * passages; }
  /// True if the head reads the pooler's output.
  [[nodiscard]] bool has_pooler() const { return bert::has_pooler(kind) && !start_markers; }
};

class FinetuningStep : public OptimizerStep {
 public:
  /// Makes a model with the initial weights of `config` on `device`, its optimizer and its loss scaler; parameters of
  /// config.frozen_layers get no gradient. Throws ConfigError if the model has fewer layers, and as OptimizerStep.
  FinetuningStep(const FinetuneConfig& config, const TaskHead& head, c10::Device device,
                 c10::intrusive_ptr<c10d::ProcessGroup> group);

  /// Logits in fp32, as TaskModel::forward(). Computes under the autocast of the run. Gradient mode is that of the caller.
  torch::Tensor forward(const PackedBatch& batch);
  /// The mean loss of a batch with labels, an fp32 scalar: cross entropy of classes, of choices, and of first and last
  /// tokens (the mean of both); mean squared error of numbers; binary cross entropy of scores
  /// and of independent labels. Errors of several numbers or labels are means over these and the sequences.
  [[nodiscard]] torch::Tensor loss(const torch::Tensor& logits, const PackedBatch& batch) const;
  /// The number of items of which loss() is the mean, an fp64 scalar on the device.
  [[nodiscard]] torch::Tensor labels_of(const PackedBatch& batch) const;
  [[nodiscard]] const TaskHead& head() const { return head_; }

  /// From now on training minimises the loss of embeddings. Call it before the first step of a head of kEmbedding.
  /// `unread_prompts`: the beginnings of sequences whose tokens the pooling leaves out.
  void learn_embeddings(EmbeddingObjectiveConfig config, const ProcessGroupPtr& group,
                        EmbeddingObjective::Encode teacher, const std::vector<std::vector<int64_t>>& unread_prompts);
  /// From now on training minimises the losses of `distillation`, which names them. Call it before the first step.
  void learn_from(std::unique_ptr<Distillation> distillation) { distillation_ = std::move(distillation); }

  [[nodiscard]] std::vector<std::string> loss_names() const override;
  [[nodiscard]] std::vector<torch::Tensor> loss_items(const PackedBatch& batch) const override;

 private:
  FinetuningStep(const FinetuneConfig& config, const TaskHead& head, TaskModel model, c10::Device device,
                 c10::intrusive_ptr<c10d::ProcessGroup> group);
  void prepare(std::span<const PackedBatch> micro_batches, int64_t of_all_ranks) override;
  std::vector<torch::Tensor> loss_terms(const PackedBatch& batch) override;
  /// loss() of a training batch, whose rerankers' examples have head().passages sequences each.
  [[nodiscard]] torch::Tensor training_loss(const torch::Tensor& logits, const PackedBatch& batch) const;
  /// forward(), with the taps of the encoder if `tap`.
  TappedOutput tapped_forward(const PackedBatch& batch, bool tap);

  TaskModel model_;
  TaskHead head_;
  torch::Tensor class_weights_;  // [classes] fp32 on the device; undefined: all 1
  int64_t dropout_seed_;
  double label_smoothing_;
  std::unique_ptr<Distillation> distillation_;     // nullptr: the loss of the labels alone
  std::unique_ptr<EmbeddingObjective> objective_;  // of embeddings
};

}  // namespace bert
