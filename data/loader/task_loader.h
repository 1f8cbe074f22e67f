// Batches of a fine-tuning task's sequences, which are in memory, in an order that is a pure function of seed and number.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cuda_ext/packed_batch.h"
#include "data/loader/example_order.h"
#include "data/loader/global_step.h"
#include "data/tasks/task_data.h"

namespace bert {

/// A sequence, and the number of its dropout keys.
struct NumberedTaskSequence {
  int64_t number = 0;
  const TaskSequence* sequence = nullptr;
};

/// Lays sequences of `features`, one or more, end to end, without labels.
PackedBatch pack_sequences(const TaskFeatures& features, std::span<const NumberedTaskSequence> members,
                           bool pin_memory = false);

/// Lays sequences of `features` end to end, with the labels of their kind (PackedBatch::labels) and their windows. A unit
/// is a sequence, the sequences of all choices of one example, or the windows of a text: `units` are indices of
/// TaskFeatures::unit(). The sequences of units[i] have the numbers from numbers[i] * stride on in their dropout keys;
/// stride 0: TaskFeatures::most_sequences(), the columns of windows. The last example's choices, and every other's, must
/// be there.
PackedBatch pack_task_sequences(const TaskFeatures& features, int64_t choices, std::span<const int64_t> units,
                                std::span<const int64_t> numbers, bool pin_memory = false, int64_t stride = 0);

struct TaskLoaderConfig {
  int64_t choices = 1;                                   // sequences of one unit
  int64_t micro_batch_size = 8, global_batch_size = 32;  // units
  uint64_t seed = 0;
  int64_t rank = 0, world_size = 1;
  bool pin_memory = false;
};

/// Throws c10::Error if micro_batch_size does not divide global_batch_size, or if there are more ranks than micro-batches.
void check_division(const TaskLoaderConfig& config);

/// The micro-batches of config.rank in a step of units with these weights, as places in `weights`: Note [Balanced
/// micro-batches] in batch_plan.h.
std::vector<std::vector<int64_t>> micro_batches_of_rank(const std::vector<int64_t>& weights,
                                                        const TaskLoaderConfig& config);

/// Every unit comes once in an epoch; batches do not end with epochs. Micro-batches are balanced: Note [Balanced
/// micro-batches] in batch_plan.h. SamplerState counts units. Batches are made when they are asked for: to copy the ids of
/// a micro-batch takes microseconds.
class TaskLoader : public StepLoader {
 public:
  /// `features` have units. Throws as check_division().
  TaskLoader(std::shared_ptr<const TaskFeatures> features, const TaskLoaderConfig& config);

  GlobalStep next_step() override;
  [[nodiscard]] SamplerState state() const override { return position_; }
  void restore(const SamplerState& state) override;

 private:
  [[nodiscard]] int64_t weight(int64_t unit) const;
  /// The numbers of the units in each of this rank's micro-batches of the next step.
  std::vector<std::vector<int64_t>> plan_step();

  std::shared_ptr<const TaskFeatures> features_;
  TaskLoaderConfig config_;
  ExampleOrder order_;
  SamplerState position_;
  int64_t most_;          // sequences of a unit at most
  int64_t heaviest_ = 0;  // tokens of a unit at most
};

}  // namespace bert
