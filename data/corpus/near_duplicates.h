// Duplicates of documents, exact and near.
//
// Note [MinHash]
// A document is the set of its word 5-grams (one shingle of all words if it has fewer than five), in lower case and without
// accents; punctuation separates words, an ideograph is a word. The share of 128 hash functions with the same minimum over
// two sets estimates their Jaccard similarity, with a standard error of 0.035 at 0.8. Eight bits of each minimum are kept.
// Two documents are compared if they agree in one of 16 bands of 8 minima: with probability 1 - (1 - s^8)^16 at similarity
// s, which is 0.95 at 0.8, 0.99 at 0.85, 0.06 at 0.5.
// Sources: Broder, On the resemblance and containment of documents (1997); Leskovec, Rajaraman and Ullman, Mining of
// Massive Datasets, chapter 3 (shingling, minhashing, banding); Li and Koenig, b-Bit minwise hashing (2010).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bert {

/// Documents as similar as this are near-duplicates.
inline constexpr double kNearDuplicate = 0.8;

inline constexpr size_t kMinHashes = 128;
using MinHash = std::array<uint8_t, kMinHashes>;

/// The signature of a document of valid UTF-8: the same bytes on every machine.
MinHash min_hash(std::string_view text);

/// Estimate of the Jaccard similarity of two documents' shingles, 0 to 1.
double estimated_similarity(const MinHash& a, const MinHash& b);

/// Set of 128-bit hashes. An element takes 16 bytes, at a load of 35 to 70 %.
class HashSet {
 public:
  /// Adds the hash; false if it is in the set.
  bool insert(uint64_t low, uint64_t high);
  [[nodiscard]] int64_t bytes() const { return static_cast<int64_t>(slots_.size() * sizeof slots_[0]); }

 private:
  using Hash = std::pair<uint64_t, uint64_t>;  // {0, 0} is a free slot
  void grow();
  size_t used_ = 0;
  std::vector<Hash> slots_;
};

/// Signatures of documents, found by their bands. A document takes 128 bytes, and 16 times 4 bytes at a load of 35 to
/// 70 %.
class NearDuplicates {
 public:
  /// Adds a signature, unless an earlier one is as similar as kNearDuplicate: then returns false. The result depends on
  /// the order of the calls.
  bool insert(const MinHash& signature);
  [[nodiscard]] int64_t bytes() const;

 private:
  static constexpr size_t kBands = 16, kRows = kMinHashes / kBands;
  static_assert(kRows == sizeof(uint64_t));

  static uint64_t band_of(const MinHash& signature, size_t band);
  void grow();

  std::deque<MinHash> signatures_;
  std::array<std::vector<uint32_t>, kBands> tables_;  // index into signatures_, from 1; 0 is a free slot
};

}  // namespace bert
