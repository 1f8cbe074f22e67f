// Batches of a fine-tuning task's sequences, which are in memory, in an order that is a pure function of seed and number.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "cuda_ext/packed_batch.h"
#include "data/loader/batch_loader.h"
#include "data/loader/example_order.h"
#include "data/tasks/task_data.h"

namespace bert {

/// Lays sequences of `features` end to end, with the labels of their kind (PackedBatch::labels). A unit is a sequence, or
/// the sequences of all choices of one example: `units` are their indices, with `choices` sequences each. The sequences
/// of units[i] have the numbers from numbers[i] * choices on in their dropout keys. The last example's choices, and every
/// other's, must be there.
PackedBatch pack_task_sequences(const TaskFeatures& features, int64_t choices, std::span<const int64_t> units,
                                std::span<const int64_t> numbers, bool pin_memory = false);

struct TaskLoaderConfig {
  int64_t choices = 1;                                   // sequences of one unit
  int64_t micro_batch_size = 8, global_batch_size = 32;  // units
  uint64_t seed = 0;
  int64_t rank = 0, world_size = 1;
  bool pin_memory = false;
};

/// Every unit comes once in an epoch; batches do not end with epochs. Micro-batches are balanced: Note [Balanced
/// micro-batches] in batch_plan.h. SamplerState counts units. Batches are made when they are asked for: to copy the ids of
/// a micro-batch takes microseconds.
class TaskLoader : public BatchLoader {
 public:
  /// `features` have units. Throws c10::Error if micro_batch_size does not divide global_batch_size, or if there are more
  /// ranks than micro-batches.
  TaskLoader(std::shared_ptr<const TaskFeatures> features, const TaskLoaderConfig& config);

  PackedBatch next() override;
  [[nodiscard]] bool between_steps() const override { return own_.empty(); }
  [[nodiscard]] int64_t micro_batches_of_step() const override {
    return config_.global_batch_size / config_.micro_batch_size;
  }
  [[nodiscard]] const std::vector<ExampleSource>& sources() const override { return sources_; }
  [[nodiscard]] int64_t capacity() const override { return config_.micro_batch_size * heaviest_; }
  [[nodiscard]] double seconds_waited() const override { return 0; }
  [[nodiscard]] const DamagedRows& damaged() const override { return damaged_; }
  [[nodiscard]] SamplerState state() const override;
  void restore(const SamplerState& state) override;
  [[nodiscard]] ExampleOrder::Place place_of_sequence(int64_t sequence) const override;

 private:
  [[nodiscard]] int64_t weight(int64_t unit) const;
  void plan_step();

  std::shared_ptr<const TaskFeatures> features_;
  TaskLoaderConfig config_;
  std::vector<ExampleSource> sources_;
  mutable ExampleOrder order_;
  DamagedRows damaged_;
  int64_t heaviest_ = 0;                  // tokens of a unit at most
  int64_t steps_ = 0, begin_ = 0;         // begun steps, and the first unit of the next one
  std::deque<std::vector<int64_t>> own_;  // numbers of the units in this rank's micro-batches that the step still has
};

}  // namespace bert
