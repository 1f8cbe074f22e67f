// Logits of a task's examples by the model that is being trained.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "app/finetune/finetuning_step.h"
#include "data/tasks/task_data.h"

namespace bert {

struct TaskLogits {
  std::vector<float> logits;  // as TaskFeatures describes
  double loss = 0;            // mean loss of all labels, as in training; 0 where there are none
};

/// Computes the logits of all sequences without dropout. Batches are dealt to the ranks in turn; the logits do not depend
/// on the number of ranks. Every rank must call it and gets the same result. `with_loss`: the sequences have labels.
/// `stop` is asked before each batch and may differ between ranks. If it is true on one rank, no rank gets a result.
std::optional<TaskLogits> compute_task_logits(FinetuningStep& step, const TaskFeatures& features, bool with_loss,
                                              const std::function<bool()>& stop);

}  // namespace bert
