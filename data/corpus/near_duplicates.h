// Duplicates of documents, exact and near.
//
// Note [MinHash]
// A document is the set of its word 5-grams (one shingle of all words if it has fewer than five), in lower case and without
// accents; punctuation separates words, an ideograph is a word. The share of 128 hash functions with the same minimum over
// two sets estimates their Jaccard similarity. Four bits of each minimum are kept: the standard error at 0.8 is 0.037, and
// 0.035 with all bits. Two documents are compared if they agree in one of 16 bands of 8 minima: with probability
// 1 - (1 - s^8)^16 at similarity s, which is 0.95 at 0.8, 0.99 at 0.85, 0.06 at 0.5.
// Sources: Broder, On the resemblance and containment of documents (1997); Leskovec, Rajaraman and Ullman, Mining of
// Massive Datasets, chapter 3 (shingling, minhashing, banding); Li and Koenig, b-Bit minwise hashing (2010).
//
// Note [Memory for duplicates]
// Tables grow by a quarter when 75 % of their slots are used, so 60 to 75 % are used. A document takes 8 bytes and a slot
// of the set of hashes: 10.7 to 13.3 bytes. With near-duplicates it takes 64 bytes and 16 slots of 4 bytes more: 149 to 171
// bytes. A table that grows is there twice for that time; only one grows at once. So 10 million documents fit into
// 2,000 MB (tests/data/corpus_duplicates_test.cc).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace bert {

/// Documents as similar as this are near-duplicates.
inline constexpr double kNearDuplicate = 0.8;

inline constexpr size_t kMinHashes = 128;
using MinHash = std::array<uint8_t, kMinHashes / 2>;  // two hash functions a byte

/// The signature of a document of valid UTF-8: the same bytes on every machine.
MinHash min_hash(std::string_view text);

/// Estimate of the Jaccard similarity of two documents' shingles, 0 to 1.
double estimated_similarity(const MinHash& a, const MinHash& b);

/// A table with open addressing that grows by a quarter: a slot with T{} is free.
template <class T>
class SlotTable {
 public:
  /// Memory that is taken while a table for `used` and one more elements is made, and after it.
  [[nodiscard]] size_t bytes_while_growing(size_t used) const {
    return must_grow(used) ? (slots_.size() + grown()) * sizeof(T) : bytes();
  }
  [[nodiscard]] size_t bytes_after_growing(size_t used) const {
    return must_grow(used) ? grown() * sizeof(T) : bytes();
  }
  [[nodiscard]] size_t bytes() const { return slots_.size() * sizeof(T); }
  [[nodiscard]] bool must_grow(size_t used) const { return 4 * (used + 1) > 3 * slots_.size(); }
  [[nodiscard]] bool empty() const { return slots_.empty(); }

  /// The first slot for a hash of 64 random bits, and the slot after a slot.
  [[nodiscard]] size_t first(uint64_t hash) const {
    __extension__ using Wide = unsigned __int128;
    return static_cast<size_t>(static_cast<Wide>(hash) * slots_.size() >> 64);
  }
  [[nodiscard]] size_t after(size_t slot) const { return slot + 1 == slots_.size() ? 0 : slot + 1; }
  T& operator[](size_t slot) { return slots_[slot]; }
  const T& operator[](size_t slot) const { return slots_[slot]; }

  /// Makes room. `hash_of` gives the hash of an element.
  template <class HashOf>
  void grow(const HashOf& hash_of) {
    const std::vector<T> old = std::exchange(slots_, std::vector<T>(grown()));
    for (const T& element : old) {
      if (element == T{}) continue;
      size_t slot = first(hash_of(element));
      while (slots_[slot] != T{}) slot = after(slot);
      slots_[slot] = element;
    }
  }

 private:
  static constexpr size_t kFirstSlots = 1024;
  [[nodiscard]] size_t grown() const { return slots_.empty() ? kFirstSlots : slots_.size() + slots_.size() / 4; }

  std::vector<T> slots_;
};

/// Set of hashes of 64 random bits. Two of 10 million different documents have the same one with a probability of 3 in a
/// million.
class HashSet {
 public:
  /// Adds the hash; false if it is in the set.
  bool insert(uint64_t hash);
  [[nodiscard]] bool contains(uint64_t hash) const;
  /// Memory that the next insert() takes at most, with all that is in the set.
  [[nodiscard]] int64_t bytes_to_insert() const { return static_cast<int64_t>(slots_.bytes_while_growing(used_)); }

 private:
  size_t used_ = 0;
  SlotTable<uint64_t> slots_;  // 0 is a free slot
};

/// Signatures of documents, found by their bands.
class NearDuplicates {
 public:
  /// Adds a signature, unless an earlier one is as similar as kNearDuplicate: then returns false. The result depends on
  /// the order of the calls that returned true.
  bool insert(const MinHash& signature);
  /// Memory that the next insert() takes at most, with all signatures.
  [[nodiscard]] int64_t bytes_to_insert() const;

 private:
  static constexpr size_t kBands = 16, kBandBytes = sizeof(MinHash) / kBands;
  static_assert(kBandBytes == sizeof(uint32_t));
  static constexpr size_t kBlock = 4096;  // signatures that are allocated at once

  static uint32_t band_of(const MinHash& signature, size_t band);
  static uint64_t hash_of(uint32_t band);
  [[nodiscard]] const MinHash& signature_of(uint32_t index) const {
    return (*blocks_[(index - 1) / kBlock])[(index - 1) % kBlock];
  }
  void append(const MinHash& signature);
  void grow();

  size_t count_ = 0;
  std::vector<std::unique_ptr<std::array<MinHash, kBlock>>> blocks_;
  std::array<SlotTable<uint32_t>, kBands> tables_;  // number of a signature, from 1; 0 is a free slot
};

}  // namespace bert
