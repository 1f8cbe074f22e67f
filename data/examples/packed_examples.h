// Examples as references to the tokens of their documents: a tenth of the memory of PretrainingExample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/examples/masking.h"
#include "data/random/py_random.h"

namespace bert {

/// The segments of an example as ranges of tokens [begin, end) in TokenizedDocuments.
struct SegmentPair {
  size_t a_begin = 0, a_end = 0;
  size_t b_begin = 0, b_end = 0;  // empty without B
  bool has_b = false;
  bool label = false;  // PretrainingExample::is_random_next
};

/// A token that was masked, and its replacement.
struct TokenReplacement {
  int32_t position;
  int32_t id;
};

/// A list of examples that can be shuffled. An example takes 8 bytes for its place, and as a rule 10 for its segments and
/// 1.3 for each masked token.
class PackedExamples {
 public:
  /// Appends an example. `ids` is the sequence after `masked` was replaced in it.
  void add(const SegmentPair& pair, std::span<const MaskedToken> masked, std::span<const int32_t> ids, int32_t mask_id);
  [[nodiscard]] size_t size() const { return places_.size(); }
  void shuffle(PyRandom& random) { random.shuffle(places_); }

  /// Reads an example part by part: first pair(), then next_masked() until it returns false.
  class Reader {
   public:
    Reader(const PackedExamples& examples, size_t i);
    [[nodiscard]] const SegmentPair& pair() const { return pair_; }
    /// The number of masked tokens that are left.
    [[nodiscard]] size_t masked_left() const { return masked_; }
    /// The next masked token. `ids` is the sequence before any replacement.
    TokenReplacement next_masked(std::span<const int32_t> ids, int32_t mask_id);

   private:
    uint64_t number();
    const uint8_t* at_;
    SegmentPair pair_;
    size_t masked_ = 0;
    int32_t position_ = -1;
  };

 private:
  // The largest example, 65535 masked tokens of at most 8 bytes, fits in a block.
  static constexpr size_t kBlockBits = 20, kBlockBytes = size_t{1} << kBlockBits;

  std::vector<std::unique_ptr<uint8_t[]>> blocks_;
  size_t used_ = kBlockBytes;     // bytes of the last block
  std::vector<uint64_t> places_;  // block and byte in it
  std::vector<uint8_t> scratch_;
};

}  // namespace bert
