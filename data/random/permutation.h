// A shuffled order that needs no memory and gives any element directly.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <stdexcept>

namespace bert {

/// Mixes 64 bits so that every input bit affects every output bit (the finaliser of SplitMix64: Steele, Lea and Flood,
/// 2014).
inline constexpr uint64_t mix_bits(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

/// A permutation of 0 .. size - 1, chosen by (seed, epoch) and computed element by element. It is a Feistel network on
/// the smallest even number of bits that holds size - 1, applied until the value falls below size (Black and Rogaway,
/// "Ciphers with arbitrary finite domains", 2002). The domain is smaller than 4 * size, so fewer than 4 applications
/// are needed on average.
class Permutation {
 public:
  /// Throws std::invalid_argument when size < 1.
  Permutation(int64_t size, uint64_t seed, uint64_t epoch) : size_(static_cast<uint64_t>(size)) {
    if (size < 1) throw std::invalid_argument("Permutation: size must be at least 1");
    half_bits_ = (static_cast<int>(std::bit_width(size_ - 1)) + 1) / 2;
    uint64_t key = mix_bits(mix_bits(seed) ^ epoch);
    for (uint64_t& round_key : round_keys_) round_key = key = mix_bits(key);
  }

  /// The element at `position`, 0 <= position < size.
  [[nodiscard]] int64_t operator()(int64_t position) const {
    if (half_bits_ == 0) return position;  // one element
    uint64_t value = static_cast<uint64_t>(position);
    do {
      value = encrypt(value);
    } while (value >= size_);
    return static_cast<int64_t>(value);
  }

 private:
  [[nodiscard]] uint64_t encrypt(uint64_t value) const {
    const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
    uint64_t left = value >> half_bits_, right = value & mask;
    for (const uint64_t key : round_keys_) {
      const uint64_t next = left ^ (mix_bits(right ^ key) & mask);
      left = right;
      right = next;
    }
    return left << half_bits_ | right;
  }

  uint64_t size_;
  int half_bits_ = 0;
  std::array<uint64_t, 8> round_keys_{};  // twice the four rounds that Luby and Rackoff's theorem asks for
};

}  // namespace bert
