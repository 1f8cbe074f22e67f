// Batches of pre-training examples, in an order that is a pure function of seed and sequence number.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/batch_sizes.h"
#include "data/loader/collate.h"
#include "data/loader/example_order.h"
#include "data/loader/global_step.h"

namespace bert {

struct DataLoaderConfig {
  int64_t micro_batch_size = 8;    // sequences
  int64_t micro_batch_tokens = 0;  // instead of micro_batch_size: Note [Packed micro-batches] in batch_plan.h
  int64_t length_bin_size = 0;     // tokens; micro-batches of sequences whose lengths are in one bin, or the next ones
  bool shuffle = true;             // another permutation in every epoch, from seed and epoch
  uint64_t seed = 0;
  int64_t rank = 0, world_size = 1;
  // Sequences of one step over all ranks, in the mean with micro_batch_tokens; their micro-batches are balanced: Note
  // [Balanced micro-batches] in batch_plan.h. 0: one micro-batch a rank.
  int64_t global_batch_size = 0;
  std::vector<BatchGrowth> batch_growth = {};  // larger global batches later on, each like the first
  bool pin_memory = false;
  std::vector<ExampleSource> sources = {};     // of the shards' examples, in their order; empty: one source
  std::optional<DynamicMasking> masking = {};  // drawn for every epoch; without it: the masks in the shards
  bool replace_damaged_rows = false;           // Note [Damaged rows] in sequence_reader.h
};

/// The number of tokens of a sequence in the mean over a run: that of each source by the share of its weight. Within a
/// shard the mean counts, if a source ends there.
[[nodiscard]] double mean_length(const std::vector<ExampleSource>& sources, const PretrainingShards& shards);

/// The number of micro-batches of a step with micro_batch_tokens: Note [Packed micro-batches] in batch_plan.h. 0 if the
/// mean step of global_batch_size sequences does not fill half of one.
[[nodiscard]] int64_t packed_micro_batches(const DataLoaderConfig& config, const PretrainingShards& shards);

/// Note [Steps made ahead]
/// A background thread makes the next step while the caller computes the present one. The memory of a step may be pinned:
/// 32,768 sequences of 512 tokens, the largest step of configs/ on one GPU, take 512 MiB. LibTorch keeps pinned memory
/// that is free again, so a batch costs no call of the driver once the first ones are gone.

class PretrainingDataLoader : public StepLoader {
 public:
  /// Throws c10::Error on invalid settings. global_batch_size must be a multiple of micro_batch_size (unless
  /// micro_batch_tokens is set), and every rank must have a micro-batch. micro_batch_tokens must have room for the longest
  /// row, packed_micro_batches() must not be 0, and together they must have room for the longest row once a rank.
  PretrainingDataLoader(std::shared_ptr<const PretrainingShards> shards, DataLoaderConfig config);
  ~PretrainingDataLoader() override;

  /// If the micro-batches of the step cannot be divided by the number of ranks, the first ranks have one more. Throws the
  /// background thread's error.
  GlobalStep next_step() override;
  [[nodiscard]] SamplerState state() const override;
  void restore(const SamplerState& state) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bert
