// Sequences to one batch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cuda_ext/packed_batch.h"
#include "data/examples/masking.h"
#include "data/loader/sequence_reader.h"

namespace bert {

/// Masks that are drawn when a batch is made.
struct DynamicMasking {
  std::shared_ptr<const MaskingVocabulary> vocabulary;
  MaskingConfig config;
};

/// A sequence of a batch.
struct NumberedSequence {
  int64_t number = 0;
  SequenceReader::Sequence data;
};

struct CollatorConfig {
  uint64_t seed = 0;          // of the masks
  bool pairs = true;          // batches have next_sentence_labels
  bool name_sources = false;  // batches have masked_sources
  bool pin_memory = false;
  int64_t tokens = 0;       // of static batches: Note [Static batches] in batch_plan.h; 0: batches without padding
  int64_t longest_row = 0;  // of static batches
};

/// Lays sequences end to end. Each thread needs its own object.
class Collator {
 public:
  /// The masks of `masking` are a pure function of the seed, the epoch of the source and the example; without it masks
  /// are those that the rows store.
  Collator(std::optional<DynamicMasking> masking, const CollatorConfig& config);

  /// `sequences` must not be empty.
  PackedBatch operator()(const std::vector<NumberedSequence>& sequences);

 private:
  /// Fills drawn_ids_, drawn_ and drawn_ends_.
  void draw_masks(const std::vector<NumberedSequence>& sequences);

  std::optional<DynamicMasking> masking_;
  std::optional<Masker> masker_;
  CollatorConfig config_;
  // The masked ids of all sequences, and the masked tokens with positions in their sequences. Members keep their memory.
  std::vector<int32_t> drawn_ids_;
  std::vector<MaskedToken> drawn_;
  std::vector<size_t> drawn_ends_;  // of each sequence, in drawn_
};

}  // namespace bert
