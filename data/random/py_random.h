// CPython's random.Random, draw for draw, so that examples equal those of Google's Python script. Source: Matsumoto and
// Nishimura, "Mersenne Twister", 1998 (MT19937, init_by_array); CPython's Lib/random.py and Modules/_randommodule.c for
// the distributions. The tests compare with values that CPython printed.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "data/random/random_draws.h"

namespace bert {

class PyRandom : public RandomDraws<PyRandom> {
 public:
  /// random.Random(seed), seed >= 0.
  explicit PyRandom(uint64_t seed) {
    const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
    init_by_array(key, key[1] == 0 ? 1 : 2);
  }

  /// A double in [0, 1) with 53 random bits.
  double random() {
    const uint32_t high = next_word() >> 5, low = next_word() >> 6;
    return (high * 67108864.0 + low) * (1.0 / 9007199254740992.0);  // (high * 2^26 + low) / 2^53
  }

  /// `bits` random bits, 1 to 64.
  uint64_t getrandbits(int bits) {
    if (bits <= 32) return next_word() >> (32 - bits);
    const uint64_t low = next_word();
    return low | static_cast<uint64_t>(next_word() >> (64 - bits)) << 32;
  }

 private:
  friend class RandomDraws<PyRandom>;

  static constexpr size_t kWords = 624, kShift = 397;  // MT19937's n and m

  /// Uniform in [0, n): draws as many bits as n has until the value fits.
  uint64_t below(uint64_t n) {
    const int bits = static_cast<int>(std::bit_width(n));
    uint64_t value = getrandbits(bits);
    while (value >= n) value = getrandbits(bits);
    return value;
  }

  void init_by_array(const std::array<uint32_t, 2>& key, size_t length) {
    state_[0] = 19650218;
    for (uint32_t i = 1; i < kWords; ++i) state_[i] = 1812433253 * (state_[i - 1] ^ state_[i - 1] >> 30) + i;
    size_t i = 1, j = 0;
    const auto advance = [&] {
      if (++i == kWords) {
        state_[0] = state_[kWords - 1];
        i = 1;
      }
    };
    for (size_t k = 0; k < kWords; ++k) {
      state_[i] = (state_[i] ^ (state_[i - 1] ^ state_[i - 1] >> 30) * 1664525) + key[j] + static_cast<uint32_t>(j);
      advance();
      j = (j + 1) % length;
    }
    for (size_t k = 0; k + 1 < kWords; ++k) {
      state_[i] = (state_[i] ^ (state_[i - 1] ^ state_[i - 1] >> 30) * 1566083941) - static_cast<uint32_t>(i);
      advance();
    }
    state_[0] = 0x80000000;
    position_ = kWords;
  }

  uint32_t next_word() {
    if (position_ == kWords) {
      for (size_t i = 0; i < kWords; ++i) {
        const uint32_t y = (state_[i] & 0x80000000) | (state_[(i + 1) % kWords] & 0x7fffffff);
        state_[i] = state_[(i + kShift) % kWords] ^ y >> 1 ^ (y & 1 ? 0x9908b0df : 0);
      }
      position_ = 0;
    }
    uint32_t y = state_[position_++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680;
    y ^= y << 15 & 0xefc60000;
    return y ^ y >> 18;
  }

  std::array<uint32_t, kWords> state_{};
  size_t position_ = kWords;
};

}  // namespace bert
