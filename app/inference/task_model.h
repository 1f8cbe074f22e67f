// A BERT with the head of a fine-tuning task.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <variant>

#include "app/inference/embedding_model.h"
#include "app/inference/marker_model.h"
#include "app/inference/predictor.h"
#include "app/inference/pretrained.h"
#include "data/tasks/task_definition.h"
#include "model/bert.h"
#include "model/inference.h"
#include "model/state_dict.h"

namespace bert {

/// The model whose head a kind of task has; the names of its parameters are those of transformers.
class TaskModel {
 public:
  /// `num_outputs`: TaskDefinition::num_outputs(). The weights are those of new modules (NoInitWeights applies).
  /// Of embeddings, `num_outputs` are the classes of BertForSentenceEmbedding, and `sentence` is behind the encoder.
  /// `start_markers`: BertForEntityMarkers in place of a classifier of the pooler's output.
  TaskModel(const BertConfig& config, TaskKind kind, int64_t num_outputs, const SentenceEncoder& sentence = {},
            bool start_markers = false, WindowPooling window_pooling = WindowPooling::kMean);

  /// The logits of a packed batch:
  ///   classification [B, labels], regression [B, 1], token classification [T, labels], question answering [T, 2] (start
  ///   and end), multiple choice [B / choices, choices], embeddings [B, dimensions]; of a batch with windows one row a
  ///   text: [N, labels], [N, 1]
  torch::Tensor forward(const PackedBatch& batch, int64_t choices = 1);

  [[nodiscard]] std::shared_ptr<torch::nn::Module> module() const;
  [[nodiscard]] BertModelImpl& encoder();
  /// The model itself, made with `start_markers`.
  [[nodiscard]] const BertForEntityMarkers& marker_model() const { return std::get<BertForEntityMarkers>(model_); }
  /// The head; nullptr for embeddings without a classifier.
  [[nodiscard]] LinearImpl* head();
  /// BertForSequenceClassification::window_attention; undefined in other models.
  [[nodiscard]] torch::Tensor window_attention() const;
  void set_dropout_seed(int64_t seed);
  /// Of embeddings: the pooling does not read the tokens of sequences that begin with `ids`, int64 [P] on the device.
  void leave_out_prompt(const torch::Tensor& ids);

 private:
  std::variant<BertForSequenceClassification, BertForTokenClassification, BertForQuestionAnswering,
               BertForMultipleChoice, BertForSentenceEmbedding, BertForEntityMarkers>
      model_;
};

/// The fine-tuned model of `pretrained`, with its weights, in fp32 on the CPU and in evaluation mode. With kShare the
/// model must not outlive the weights. Throws DataError if its task is unknown, or the weights are not those of its task's
/// model.
TaskModel load_task_model(const Pretrained& pretrained, LoadMode mode = LoadMode::kCopy);

/// A TaskModel for answers alone, as BertInference: any number of threads may call it at once.
class TaskInference {
 public:
  /// Copies the weights to the device and the dtype of `options`. Throws as load_task_model(), and c10::Error as
  /// BertInference for options.int8; the head's product is never of bytes.
  TaskInference(const Pretrained& pretrained, const PredictorOptions& options);

  /// As TaskModel::forward(), of a batch without windows.
  [[nodiscard]] torch::Tensor forward(const PackedBatch& batch, int64_t choices = 1) const;
  /// The logits of windows [W, labels], and what weighs them in WindowPooling::kAttention, [W], else undefined.
  struct WindowLogits {
    torch::Tensor logits, scores;
  };
  [[nodiscard]] WindowLogits of_windows(const PackedBatch& batch) const;

 private:
  TaskInference(const Pretrained& pretrained, TaskModel model, const PredictorOptions& options);

  TaskKind kind_;
  bool start_markers_;
  BertInference encoder_;
  torch::Tensor head_weight_, head_bias_;  // [outputs, H or 2 * H], [outputs]
  torch::Tensor window_attention_;         // [H]; undefined without
};

/// True if the head reads the pooler's output, but for BertForEntityMarkers.
bool has_pooler(TaskKind kind);

}  // namespace bert
