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
  // Knuth's multiplicative hash takes four bits from all bits of a minimum, whose high bits are mostly zero.
  const auto bits = [&](size_t i) { return minima[i] * 2654435769U >> 28; };
  for (size_t i = 0; i < signature.size(); ++i) signature[i] = static_cast<uint8_t>(bits(2 * i) << 4 | bits(2 * i + 1));
  return signature;
}

double estimated_similarity(const MinHash& a, const MinHash& b) {
  size_t equal = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto differ = static_cast<uint8_t>(a[i] ^ b[i]);
    equal += (differ >> 4 == 0) + ((differ & 0xF) == 0);
  }
  constexpr double kByChance = 1.0 / 16;  // of four bits
  return std::max(0.0, (static_cast<double>(equal) / kMinHashes - kByChance) / (1 - kByChance));
}

bool HashSet::insert(uint64_t hash) {
  hash = std::max<uint64_t>(hash, 1);
  if (slots_.must_grow(used_)) slots_.grow([](uint64_t each) { return each; });
  for (size_t slot = slots_.first(hash);; slot = slots_.after(slot)) {
    if (slots_[slot] == hash) return false;
    if (slots_[slot] != 0) continue;
    slots_[slot] = hash;
    ++used_;
    return true;
  }
}

bool HashSet::contains(uint64_t hash) const {
  if (slots_.empty()) return false;
  hash = std::max<uint64_t>(hash, 1);
  for (size_t slot = slots_.first(hash); slots_[slot] != 0; slot = slots_.after(slot))
    if (slots_[slot] == hash) return true;
  return false;
}

uint32_t NearDuplicates::band_of(const MinHash& signature, size_t band) {
  uint32_t rows = 0;
  std::memcpy(&rows, signature.data() + band * kBandBytes, kBandBytes);
  return rows;
}

uint64_t NearDuplicates::hash_of(uint32_t band) { return XXH3_64bits(&band, sizeof band); }

bool NearDuplicates::insert(const MinHash& signature) {
  if (tables_[0].must_grow(count_)) grow();
  std::array<size_t, kBands> free{};  // the slot for the new signature in each table
  for (size_t band = 0; band < kBands; ++band) {
    const SlotTable<uint32_t>& table = tables_[band];
    const uint32_t rows = band_of(signature, band);
    size_t compared = 0;
    size_t slot = table.first(hash_of(rows));
    for (; table[slot] != 0; slot = table.after(slot)) {
      const MinHash& other = signature_of(table[slot]);
      if (compared == kMostCompared || band_of(other, band) != rows) continue;
      ++compared;
      if (estimated_similarity(signature, other) >= kNearDuplicate) return false;
    }
    free[band] = compared == kMostCompared ? SIZE_MAX : slot;
  }
  append(signature);
  for (size_t band = 0; band < kBands; ++band) {
    if (free[band] != SIZE_MAX) tables_[band][free[band]] = static_cast<uint32_t>(count_);
  }
  return true;
}

void NearDuplicates::append(const MinHash& signature) {
  if (count_ == std::numeric_limits<uint32_t>::max()) throw std::length_error("too many documents to compare");
  if (count_ % kBlock == 0) blocks_.push_back(std::make_unique<std::array<MinHash, kBlock>>());
  (*blocks_.back())[count_++ % kBlock] = signature;
}

void NearDuplicates::grow() {
  for (size_t band = 0; band < kBands; ++band)
    tables_[band].grow([&](uint32_t index) { return hash_of(band_of(signature_of(index), band)); });
}

int64_t NearDuplicates::bytes_to_insert() const {
  // The tables grow one after another: the last one is there twice when all others have grown.
  const size_t signatures = (count_ / kBlock + 1) * kBlock * sizeof(MinHash);
  const size_t tables = (kBands - 1) * tables_[0].bytes_after_growing(count_) + tables_[0].bytes_while_growing(count_);
  return static_cast<int64_t>(signatures + tables);
}

}  // namespace bert
