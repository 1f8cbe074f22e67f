// The numbers of FP8 by their definition: Micikevicius et al. 2022, arXiv:2209.05433, table 1.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "cuda_ext/scalar/math.h"

namespace bert {

class Fp8Table {
 public:
  explicit Fp8Table(Fp8 format) : mantissa_(format == Fp8::kE4M3 ? 3 : 2), bias_(format == Fp8::kE4M3 ? 7 : 15) {}

  /// The number of a byte; NaN and infinity where it has none.
  [[nodiscard]] double number(uint32_t byte) const {
    const uint32_t size = byte & 0x7F, exponent = size >> mantissa_, fraction = size & ((1U << mantissa_) - 1);
    const double sign = (byte & 0x80) != 0 ? -1.0 : 1.0;
    if (mantissa_ == 3 && size == 0x7F) return std::numeric_limits<double>::quiet_NaN();
    if (mantissa_ == 2 && exponent == 31) {
      return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    }
    const int power = std::max<int>(static_cast<int>(exponent), 1) - bias_ - mantissa_;
    return sign * std::ldexp(fraction + (exponent > 0 ? 1U << mantissa_ : 0U), power);
  }
  /// The largest number.
  [[nodiscard]] double most() const { return number(mantissa_ == 3 ? 0x7E : 0x7B); }

  /// True if the byte is that of the nearest number to x, of two the even one; of the largest number if x is larger; of
  /// NaN for NaN.
  [[nodiscard]] bool is_nearest(double x, uint32_t byte) const {
    const double got = number(byte);
    if (std::isnan(x) || std::isnan(got)) return std::isnan(x) && std::isnan(got);
    if (std::isinf(got) || std::signbit(x) != std::signbit(got)) return false;
    const double size = std::min(std::abs(x), most()), error = std::abs(std::abs(got) - size);
    const uint32_t place = byte & 0x7F;
    for (const uint32_t other : {place - 1, place + 1}) {  // neighbours are consecutive bytes
      if (other > 0x7F || !std::isfinite(number(other))) continue;
      const double other_error = std::abs(number(other) - size);
      if (other_error < error || (other_error == error && place % 2 == 1)) return false;
    }
    return byte <= 0xFF;
  }

 private:
  int mantissa_, bias_;
};

}  // namespace bert
