// A fast generator without a state to set up: draw n is a hash of the key and n.
#pragma once

#include <cstdint>
#include <utility>

#include "data/random/permutation.h"
#include "data/random/random_draws.h"

namespace bert {

/// Has the functions of PyRandom, but other numbers. Construction is free, so every sequence may have its own generator.
/// Source: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
class CounterRandom : public RandomDraws<CounterRandom> {
 public:
  /// Any two keys give unrelated draws.
  explicit CounterRandom(uint64_t key) : state_(mix_bits(key)) {}

  /// A double in [0, 1) with 53 random bits.
  double random() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  friend class RandomDraws<CounterRandom>;

  uint64_t next() {
    constexpr uint64_t kStep = 0x9e3779b97f4a7c15;  // SplitMix64's: 2^64 divided by the golden ratio
    return mix_bits(std::exchange(state_, state_ + kStep));
  }

  /// Uniform in [0, n) but for n / 2^64 (Lemire, "Fast random integer generation in an interval", 2019, without the
  /// rejection).
  uint64_t below(uint64_t n) { return static_cast<uint64_t>(static_cast<unsigned __int128>(next()) * n >> 64); }

  uint64_t state_;
};

}  // namespace bert
