// The teacher of a fine-tuning run, and what the run's model learns from it.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "app/checkpoint/state.h"
#include "app/config/finetune_config.h"
#include "app/inference/pretrained.h"
#include "app/inference/task_model.h"
#include "app/train/step/optimizer_step.h"
#include "data/tasks/task_data.h"
#include "data/tasks/task_definition.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

/// The student of a teacher: the model that a run trains.
struct Student {
  const FinetuneConfig& config;  // resolved
  const TaskDefinition& task;    // with all labels
  const Tokenizer& tokenizer;
  const TaskFeatures& train;
};

/// Reads config.distillation.teacher. `note` gets sentences for people. Throws ConfigError, with both names, if the
/// teacher is of another task, has other labels, another vocabulary or too few positions or token types, or if the sizes
/// of the two do not fit the losses; DataError, InputMissing, IoError, RefusedError.
Pretrained read_teacher(const Student& student, const std::function<void(const std::string& message)>& note);

/// The checksum of the teacher's weights. Its examples are 0.
DataIdentity identity_of_teacher(const Pretrained& teacher);

/// Logits of a batch, and the values inside the encoder if losses read them.
struct TappedOutput {
  torch::Tensor logits;  // as TaskModel::forward()
  EncoderTaps taps;
};

/// The forward pass of a model under the caller's autocast and gradient mode. Without `tap`, taps are empty.
TappedOutput forward_with_taps(TaskModel& model, const PackedBatch& batch, int64_t choices, bool tap);

class Distillation {
 public:
  /// Makes the teacher's model on `device`, in the dtype of the run's weights, in evaluation mode. `config` is that of the
  /// student; `teacher` fits it: read_teacher().
  Distillation(const FinetuneConfig& config, const Pretrained& teacher, c10::Device device);

  /// The names of the losses whose weights are not 0, in the order of losses(): labels, logits, hidden, attention, value.
  [[nodiscard]] std::vector<std::string> names() const;
  /// True if a loss reads the taps of the student.
  [[nodiscard]] bool taps() const { return config_.has_inner_losses(); }
  /// The losses of a batch with their weights, fp32 scalars. `labels` is the loss of the labels. Runs the teacher without
  /// gradients, under the autocast of the run.
  [[nodiscard]] std::vector<torch::Tensor> losses(const PackedBatch& batch, const TappedOutput& student,
                                                  const torch::Tensor& labels, int64_t choices);
  /// Numbers of items, scalars on the device.
  struct Items {
    torch::Tensor labels;  // of the loss of the labels
    torch::Tensor sequences, tokens;
  };
  /// The number of items of each loss.
  [[nodiscard]] std::vector<torch::Tensor> items(const PackedBatch& batch, const Items& known) const;

 private:
  [[nodiscard]] torch::Tensor logits_loss(const PackedBatch& batch, const torch::Tensor& student,
                                          const torch::Tensor& teacher) const;

  DistillationConfig config_;
  TaskKind kind_;
  bool multi_label_;  // TaskDefinition::multi_label
  Precision precision_;
  c10::Device device_;
  int64_t heads_;  // into which query, key and value are divided for relations
  TaskModel teacher_;
};

}  // namespace bert
