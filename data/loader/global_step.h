// A step of a run, and the interface of the loaders that make it.
#pragma once

#include <cstdint>
#include <exception>
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
  int64_t consumed_steps = 0;      // a count alone, the order does not depend on it
  bool operator==(const SamplerState&) const = default;
};

/// Throws DataError if a loader with this seed cannot go on from `state`.
void check_position(const SamplerState& state, uint64_t seed);

/// The sequence numbers of a batch on the CPU, one for each sequence.
[[nodiscard]] std::vector<int64_t> sequence_numbers(const PackedBatch& batch);

/// Damaged rows that were replaced: Note [Damaged rows] in sequence_reader.h.
struct DamagedRows {
  int64_t sequences = 0;               // that took another row, over all ranks
  std::set<std::string> descriptions;  // of the damaged rows that this rank has found
  void add(const DamagedRows& more);
};

/// One step in this rank. A loader makes it on the CPU, OptimizerStep::run() consumes it on the device.
struct GlobalStep {
  std::vector<PackedBatch> micro_batches;   // of this rank
  int64_t of_all_ranks = 0;                 // micro-batches
  int64_t capacity = 0;                     // tokens that `micro_batches` could have held
  std::vector<ExampleOrder::Place> places;  // the example of each sequence of `micro_batches`, in their order
  DamagedRows damaged;                      // of this step
  double seconds_waited = 0;                // by the caller of next_step()
  SamplerState end;                         // the position after this step
  std::exception_ptr failure;               // the DataError of a step whose rows cannot be read; the rest is empty then

  [[nodiscard]] int64_t num_tokens() const;  // without padding
};

class StepLoader {
 public:
  virtual ~StepLoader() = default;

  /// Throws DataError if a row cannot be read.
  virtual GlobalStep next_step() = 0;
  /// The position after the steps that next_step() has returned.
  [[nodiscard]] virtual SamplerState state() const = 0;
  /// Continues from `state`. Throws DataError when state.seed differs from the configured seed.
  virtual void restore(const SamplerState& state) = 0;
};

}  // namespace bert
