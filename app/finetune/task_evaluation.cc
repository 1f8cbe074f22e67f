#include "app/finetune/task_evaluation.h"

#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "data/loader/task_loader.h"
#include "model/evaluation_guard.h"

namespace bert {

std::optional<TaskLogits> compute_task_logits(FinetuningStep& step, const TaskFeatures& features, bool with_loss,
                                              const std::function<bool()>& stop) {
  constexpr int64_t kBatch = 32;  // units; the logits depend on it by rounding only
  const int64_t choices = step.head().choices, units = std::ssize(features.sequences) / choices;
  const int64_t batches = (units + kBatch - 1) / kBatch;
  const std::vector<int64_t> offsets = features.logit_offsets();
  torch::Tensor flat = torch::zeros({offsets.back()});
  // One row for each batch. One rank fills in a row, so the sum over ranks is exact.
  enum Column : int64_t { kDone, kLoss, kItems, kColumns };
  torch::Tensor table = torch::zeros({batches, kColumns}, torch::kDouble);
  const torch::NoGradGuard no_grad;
  const EvaluationGuard evaluation(step.module());
  for (int64_t i = step.rank(); i < batches && !stop(); i += step.world_size()) {
    std::vector<int64_t> members(static_cast<size_t>(std::min(kBatch, units - i * kBatch)));
    std::iota(members.begin(), members.end(), i * kBatch);
    const PackedBatch batch = pack_task_sequences(features, choices, members, members).to(step.device());
    const torch::Tensor logits = step.forward(batch);
    auto* row = table.mutable_data_ptr<double>() + i * kColumns;
    row[kDone] = 1;
    if (with_loss) {
      row[kItems] = step.labels_of(batch).item<double>();
      // The mean over classes that all have the weight 0 is not a number.
      if (row[kItems] > 0) row[kLoss] = step.loss(logits, batch).item<double>() * row[kItems];
    }
    const int64_t begin = offsets[static_cast<size_t>(i * kBatch * choices)];
    flat.narrow(0, begin, logits.numel()).copy_(logits.flatten());
  }
  table = step.sum_over_ranks(table);
  if (table.select(1, kDone).sum().item<double>() < static_cast<double>(batches)) return std::nullopt;
  flat = step.sum_over_ranks(flat);
  TaskLogits result;
  const auto* values = flat.const_data_ptr<float>();
  result.logits.assign(values, values + flat.numel());
  double loss = 0, items = 0;
  for (int64_t i = 0; i < batches; ++i) {  // in the order of the batches, for any number of ranks
    loss += table.const_data_ptr<double>()[i * kColumns + kLoss];
    items += table.const_data_ptr<double>()[i * kColumns + kItems];
  }
  if (items > 0) result.loss = loss / items;
  return result;
}

}  // namespace bert
