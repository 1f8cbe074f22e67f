#include "data/corpus/near_duplicates.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "data/corpus/words.h"

namespace bert {
namespace {

constexpr size_t kShingleWords = 5;
constexpr size_t kFirstSlots = 1024;
constexpr size_t kLoadOf10 = 7;  // tenths of the slots that are used before a table grows
/// Documents that agree in a band and are not similar otherwise, as boilerplate makes them, are compared up to this many:
/// the time for a document stays bounded.
constexpr size_t kMostCompared = 64;

/// Numbers of Sebastiano Vigna's SplitMix64, which seed the hash functions.
uint64_t split_mix(uint64_t& state) {
  uint64_t z = state += 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

/// x -> factor * x + addend modulo 2^32: permutations, because the factors are odd.
struct HashFunctions {
  std::array<uint32_t, kMinHashes> factors{}, addends{};
  HashFunctions() {
    uint64_t state = 1;
    for (uint32_t& factor : factors) factor = static_cast<uint32_t>(split_mix(state)) | 1U;
    for (uint32_t& addend : addends) addend = static_cast<uint32_t>(split_mix(state));
  }
};

}  // namespace

MinHash min_hash(std::string_view text) {
  static const HashFunctions functions;
  constexpr uint32_t kLargest = std::numeric_limits<uint32_t>::max();
  std::array<uint32_t, kMinHashes> minima;
  minima.fill(kLargest);
  const auto add_shingle = [&](uint64_t hash) {
    const auto x = static_cast<uint32_t>(hash >> 32);
    for (size_t i = 0; i < kMinHashes; ++i)
      minima[i] = std::min(minima[i], functions.factors[i] * x + functions.addends[i]);
  };
  std::array<uint64_t, kShingleWords> words{};  // the last ones
  size_t count = 0;
  for_each_word(text, [&](std::string_view word) {
    std::move(words.begin() + 1, words.end(), words.begin());
    words.back() = XXH3_64bits(word.data(), word.size());
    if (++count >= kShingleWords) add_shingle(XXH3_64bits(words.data(), sizeof words));
  });
  if (count < kShingleWords) add_shingle(XXH3_64bits(words.data(), sizeof words));
  MinHash signature{};
  // Knuth's multiplicative hash takes eight bits from all bits of a minimum, whose high bits are mostly zero.
  std::transform(minima.begin(), minima.end(), signature.begin(),
                 [](uint32_t minimum) { return static_cast<uint8_t>(minimum * 2654435769U >> 24); });
  return signature;
}

double estimated_similarity(const MinHash& a, const MinHash& b) {
  size_t equal = 0;
  for (size_t i = 0; i < kMinHashes; ++i) equal += a[i] == b[i];
  constexpr double kByChance = 1.0 / 256;  // of eight bits
  return std::max(0.0, (static_cast<double>(equal) / kMinHashes - kByChance) / (1 - kByChance));
}

bool HashSet::insert(uint64_t low, uint64_t high) {
  const Hash hash{low == 0 && high == 0 ? 1 : low, high};
  if (10 * (used_ + 1) > kLoadOf10 * slots_.size()) grow();
  for (size_t at = hash.first;; ++at) {
    Hash& slot = slots_[at & (slots_.size() - 1)];
    if (slot == hash) return false;
    if (slot != Hash{}) continue;
    slot = hash;
    ++used_;
    return true;
  }
}

void HashSet::grow() {
  const std::vector<Hash> old = std::move(slots_);
  slots_.assign(std::max(kFirstSlots, 2 * old.size()), Hash{});
  for (const Hash& hash : old) {
    if (hash == Hash{}) continue;
    size_t at = hash.first;
    while (slots_[at & (slots_.size() - 1)] != Hash{}) ++at;
    slots_[at & (slots_.size() - 1)] = hash;
  }
}

uint64_t NearDuplicates::band_of(const MinHash& signature, size_t band) {
  uint64_t rows = 0;
  std::memcpy(&rows, signature.data() + band * kRows, kRows);
  return rows;
}

bool NearDuplicates::insert(const MinHash& signature) {
  if (10 * (signatures_.size() + 1) > kLoadOf10 * tables_[0].size()) grow();
  const size_t mask = tables_[0].size() - 1;
  std::array<size_t, kBands> free{};  // the slot for the new signature in each table
  for (size_t band = 0; band < kBands; ++band) {
    const uint64_t rows = band_of(signature, band);
    size_t compared = 0;
    size_t at = XXH3_64bits(&rows, sizeof rows) & mask;
    for (; tables_[band][at] != 0; at = (at + 1) & mask) {
      const MinHash& other = signatures_[tables_[band][at] - 1];
      if (compared == kMostCompared || band_of(other, band) != rows) continue;
      ++compared;
      if (estimated_similarity(signature, other) >= kNearDuplicate) return false;
    }
    free[band] = compared == kMostCompared ? SIZE_MAX : at;
  }
  signatures_.push_back(signature);
  for (size_t band = 0; band < kBands; ++band) {
    if (free[band] != SIZE_MAX) tables_[band][free[band]] = static_cast<uint32_t>(signatures_.size());
  }
  return true;
}

void NearDuplicates::grow() {
  const size_t slots = std::max(kFirstSlots, 2 * tables_[0].size());
  if (slots > std::numeric_limits<uint32_t>::max()) throw std::length_error("too many documents to compare");
  for (size_t band = 0; band < kBands; ++band) {
    const std::vector<uint32_t> old = std::exchange(tables_[band], std::vector<uint32_t>(slots));
    for (const uint32_t index : old) {
      if (index == 0) continue;
      const uint64_t rows = band_of(signatures_[index - 1], band);
      size_t at = XXH3_64bits(&rows, sizeof rows) & (slots - 1);
      while (tables_[band][at] != 0) at = (at + 1) & (slots - 1);
      tables_[band][at] = index;
    }
  }
}

int64_t NearDuplicates::bytes() const {
  return static_cast<int64_t>(signatures_.size() * sizeof(MinHash) + kBands * tables_[0].size() * sizeof(uint32_t));
}

}  // namespace bert
