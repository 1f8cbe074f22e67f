// The interface of a run's loader: the micro-batches of this rank, step by step, and a position to go on from.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "cuda_ext/packed_batch.h"
#include "data/loader/example_order.h"

namespace bert {

/// The position of a run in its data. The order of sequences depends on this, the sources and the shards alone, so
/// micro-batches and world_size may change.
struct SamplerState {
  uint64_t seed = 0;
  int64_t consumed_sequences = 0;  // over all ranks, since the run began
  int64_t consumed_steps = 0;      // with a global batch; a count alone, the order does not depend on it
  bool operator==(const SamplerState&) const = default;
};

/// The sequence numbers of a batch on the CPU, one for each sequence.
[[nodiscard]] std::vector<int64_t> sequence_numbers(const PackedBatch& batch);

/// The damaged rows that a loader has replaced.
struct DamagedRows {
  int64_t sequences = 0;               // that took another row, over all ranks, in the steps that next() has begun
  std::set<std::string> descriptions;  // of the damaged rows
};

class BatchLoader {
 public:
  virtual ~BatchLoader() = default;

  /// This rank's next micro-batch, on the CPU. Throws DataError.
  virtual PackedBatch next() = 0;
  /// False if next() has returned a part of this rank's micro-batches of a step.
  [[nodiscard]] virtual bool between_steps() const = 0;
  /// Number of micro-batches of all ranks in the step of the last batch.
  [[nodiscard]] virtual int64_t micro_batches_of_step() const = 0;
  /// The sources, at least one.
  [[nodiscard]] virtual const std::vector<ExampleSource>& sources() const = 0;
  /// The most tokens that a batch may have.
  [[nodiscard]] virtual int64_t capacity() const = 0;
  /// Seconds that next() has waited for data, in all calls.
  [[nodiscard]] virtual double seconds_waited() const = 0;
  [[nodiscard]] virtual const DamagedRows& damaged() const = 0;

  /// The state after the batches that next() has returned; within a step, the state before the step.
  [[nodiscard]] virtual SamplerState state() const = 0;
  /// Continues from `state`. Throws DataError when state.seed differs from the configured seed.
  virtual void restore(const SamplerState& state) = 0;
  /// The example that a sequence holds, for logs.
  [[nodiscard]] virtual ExampleOrder::Place place_of_sequence(int64_t sequence) const = 0;
  [[nodiscard]] int64_t example_of_sequence(int64_t sequence) const { return place_of_sequence(sequence).example; }
};

}  // namespace bert
