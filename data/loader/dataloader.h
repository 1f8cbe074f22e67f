// Batches of pre-training examples, in an order that is a pure function of seed and sequence number.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda_ext/packed_batch.h"

namespace bert {

class PretrainingShards;  // data/formats/shard.h: memory-mapped, validated shards as one indexable set of examples

struct DataLoaderConfig {
  int64_t micro_batch_size = 8;  // sequences
  bool shuffle = true;           // another permutation in every epoch, from seed and epoch
  uint64_t seed = 0;
  bool repeat = true;         // false: one pass; the last batch may be smaller
  int64_t max_sequences = 0;  // in a single pass, over all ranks; 0: all examples
  int64_t rank = 0, world_size = 1;
  // Sequences of one step over all ranks; their micro-batches are balanced, Note [Balanced micro-batches] in
  // batch_plan.h. With 0, micro-batches are consecutive sequences, and micro-batch i of the run goes to rank i %
  // world_size.
  int64_t global_batch_size = 0;
  int64_t prefetch = 0;  // batches that the background thread makes ahead; 0: Note [Batches made ahead]
  bool pin_memory = false;
};

/// Note [Batches made ahead]
/// A step asks for all of its micro-batches at once and then computes for a long time. Meanwhile the loader makes those
/// of the next step: as many as a step has (4 without a global batch), but at most 256 MiB, because the memory may be
/// pinned and a machine may have eight ranks. Of configs/ only phase 2 on one GPU meets the limit: it has 1,024
/// micro-batches of 32 x 512 tokens, and half of them are made ahead.

/// The position of a run in its data. The order of sequences depends on nothing else, so micro_batch_size and
/// world_size may change.
struct SamplerState {
  uint64_t seed = 0;
  int64_t consumed_sequences = 0;  // over all ranks, since the run began
  bool operator==(const SamplerState&) const = default;
};

/// The sequence numbers of a batch on the CPU, one for each sequence.
[[nodiscard]] std::vector<int64_t> sequence_numbers(const PackedBatch& batch);

class PretrainingDataLoader {
 public:
  /// Throws c10::Error on invalid settings. With a global_batch_size: it must be a multiple of micro_batch_size, every
  /// rank must have a micro-batch, and repeat must be set. With max_sequences: repeat must not be set.
  PretrainingDataLoader(std::shared_ptr<const PretrainingShards> shards, DataLoaderConfig config);
  ~PretrainingDataLoader();

  /// This rank's next batch. Throws the background thread's error. Must not be called when exhausted().
  PackedBatch next();
  [[nodiscard]] bool exhausted() const;  // never true with repeat

  /// Number of this rank's micro-batches in every step, with a global_batch_size. If the division leaves a remainder,
  /// the first ranks have one more.
  [[nodiscard]] int64_t micro_batches_per_step() const;

  /// The number of batches that are made ahead.
  [[nodiscard]] int64_t prefetch() const;

  /// The state after the batches that next() has returned; within a step, the state before the step.
  [[nodiscard]] SamplerState state() const;
  /// Continues from `state`. Throws DataError when state.seed differs from the configured seed.
  void restore(const SamplerState& state);
  /// Example index of a sequence number, for tests and logs.
  [[nodiscard]] int64_t example_of_sequence(int64_t sequence) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bert
