// Batches of pre-training examples, in an order that is a pure function of seed and sequence number.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cuda_ext/packed_batch.h"
#include "data/loader/batch_loader.h"
#include "data/loader/collate.h"
#include "data/loader/example_order.h"

namespace bert {

struct DataLoaderConfig {
  int64_t micro_batch_size = 8;    // sequences
  int64_t micro_batch_tokens = 0;  // instead of micro_batch_size: Note [Packed micro-batches] in batch_plan.h
  int64_t length_bin_size = 0;     // tokens; micro-batches of sequences whose lengths are in one bin, or the next ones
  bool shuffle = true;             // another permutation in every epoch, from seed and epoch
  uint64_t seed = 0;
  bool repeat = true;         // false: one pass; the last batch may be smaller
  int64_t max_sequences = 0;  // in a single pass, over all ranks; 0: all examples
  int64_t rank = 0, world_size = 1;
  // Sequences of one step over all ranks, in the mean with micro_batch_tokens; their micro-batches are balanced, Note
  // [Balanced micro-batches] in batch_plan.h. With 0, micro-batches are consecutive sequences, and micro-batch i of the run goes to rank i %
  // world_size.
  int64_t global_batch_size = 0;
  int64_t prefetch = 0;  // batches that the background thread makes ahead; 0: Note [Batches made ahead]
  bool pin_memory = false;
  std::vector<ExampleSource> sources = {};     // of the shards' examples, in their order; empty: one source
  std::optional<DynamicMasking> masking = {};  // drawn for every epoch; without it: the masks in the shards
  bool replace_damaged_rows = false;           // Note [Damaged rows] in sequence_reader.h
};

/// The number of micro-batches of a step with micro_batch_tokens: Note [Packed micro-batches] in batch_plan.h. 0 if the
/// mean step of global_batch_size sequences does not fill half of one.
[[nodiscard]] int64_t packed_micro_batches(const DataLoaderConfig& config, const PretrainingShards& shards);

/// Note [Batches made ahead]
/// A step asks for all of its micro-batches at once and then computes for a long time. Meanwhile the loader makes those
/// of the next step: as many as a step has (4 without a global batch), but at most 256 MiB, because the memory may be
/// pinned and a machine may have eight ranks. Of configs/ only phase 2 on one GPU meets the limit: it has 1,024
/// micro-batches of 32 x 512 tokens, and half of them are made ahead. LibTorch keeps pinned memory that is free again, so
/// a batch costs no call of the driver once the first ones are gone.

class PretrainingDataLoader : public BatchLoader {
 public:
  /// Throws c10::Error on invalid settings. With a global_batch_size: it must be a multiple of micro_batch_size (unless
  /// micro_batch_tokens is set), every rank must have a micro-batch, and repeat must be set. With max_sequences: repeat
  /// must not be set. Several sources, micro_batch_tokens and length_bin_size need a global_batch_size;
  /// micro_batch_tokens must have room for the longest row, packed_micro_batches() must not be 0, and together they must
  /// have room for the longest row once a rank.
  PretrainingDataLoader(std::shared_ptr<const PretrainingShards> shards, DataLoaderConfig config);
  ~PretrainingDataLoader() override;

  /// This rank's next batch. Throws the background thread's error. Must not be called when exhausted().
  PackedBatch next() override;
  [[nodiscard]] bool exhausted() const;  // never true with repeat

  /// With a global_batch_size: false if next() has returned a part of this rank's micro-batches of a step. If the step's
  /// micro-batches cannot be divided by the number of ranks, the first ranks have one more.
  [[nodiscard]] bool between_steps() const override;
  /// Number of micro-batches of all ranks in the step of the last batch, with a global_batch_size.
  [[nodiscard]] int64_t micro_batches_of_step() const override;
  /// The sources, at least one.
  [[nodiscard]] const std::vector<ExampleSource>& sources() const override;
  /// The most tokens that a batch may have.
  [[nodiscard]] int64_t capacity() const override;
  /// Seconds that next() has waited for the background thread, in all calls.
  [[nodiscard]] double seconds_waited() const override;
  [[nodiscard]] const DamagedRows& damaged() const override;

  /// The number of batches that are made ahead.
  [[nodiscard]] int64_t prefetch() const;

  /// The state after the batches that next() has returned; within a step, the state before the step.
  [[nodiscard]] SamplerState state() const override;
  /// Continues from `state`. Throws DataError when state.seed differs from the configured seed.
  void restore(const SamplerState& state) override;
  /// The example that a sequence holds, for tests and logs; in place of a damaged one that which replaces it. Reads the
  /// row if damaged rows are replaced.
  [[nodiscard]] ExampleOrder::Place place_of_sequence(int64_t sequence) const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bert
