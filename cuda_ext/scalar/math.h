// Scalar arithmetic of the kernels, for device and host. Activations are stored as float, c10::Half or c10::BFloat16
// and computed in float. The device's arithmetic instructions stand in this file only, each behind a name that has a
// host twin. launch.h has those for memory and threads. tests/scripts/layering.cmake checks this.
//
// The errors stated for instructions of the device are those of NVIDIA's PTX ISA. The formulas on top are written once
// for both builds, so the emulator's tests compare them with their definitions in double.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e5m2.h>
#include <c10/util/Half.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#ifdef __CUDACC__
#define BERT_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define BERT_HOST_DEVICE inline
#endif

namespace bert {

BERT_HOST_DEVICE float to_float(float x) { return x; }
BERT_HOST_DEVICE float to_float(c10::Half x) { return static_cast<float>(x); }
BERT_HOST_DEVICE float to_float(c10::BFloat16 x) { return static_cast<float>(x); }

/// Rounds to nearest even.
template <class T>
BERT_HOST_DEVICE T from_float(float x) {
  return static_cast<T>(x);
}

BERT_HOST_DEVICE uint32_t bits_of(float x) {
  uint32_t bits = 0;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}
BERT_HOST_DEVICE uint32_t bits_of(c10::Half x) { return x.x; }
BERT_HOST_DEVICE uint32_t bits_of(c10::BFloat16 x) { return x.x; }

BERT_HOST_DEVICE float float_of(uint32_t bits) {
  float x = 0.0F;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

/// Element i of a word of them, the lowest first.
template <class T>
BERT_HOST_DEVICE float unpack(uint32_t word, int i) {
  if constexpr (sizeof(T) == 4) {
    return float_of(word);
  } else if constexpr (std::is_same_v<T, c10::BFloat16>) {
    return float_of(i == 0 ? word << 16 : word & 0xFFFF0000U);
  } else {
    return to_float(T(static_cast<uint16_t>(word >> (16 * i)), T::from_bits()));
  }
}

/// A word of two elements of 16 bits, each rounded to nearest even; on the device one instruction.
template <class T>
BERT_HOST_DEVICE uint32_t pack_pair(float low, float high) {
#ifdef __CUDA_ARCH__
  uint32_t word = 0;
  if constexpr (std::is_same_v<T, c10::BFloat16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    memcpy(&word, &pair, sizeof(word));
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    memcpy(&word, &pair, sizeof(word));
  }
  return word;
#else
  return bits_of(from_float<T>(low)) | bits_of(from_float<T>(high)) << 16;
#endif
}

/// The numbers of 8 bits: E4M3 has no infinity, and 3 bits behind the point; E5M2 has 2. Source: Micikevicius et al.
/// 2022, arXiv:2209.05433.
enum class Fp8 { kE4M3, kE5M2 };
template <Fp8 format>
inline constexpr float kMostOfFp8 = format == Fp8::kE4M3 ? 448.0F : 57344.0F;

/// The byte of a number, rounded to nearest even. A number beyond the format's largest becomes that; NaN stays NaN.
template <Fp8 format>
BERT_HOST_DEVICE uint32_t fp8_byte(float x) {
  constexpr float kMost = kMostOfFp8<format>;
  const float within = x > kMost ? kMost : x < -kMost ? -kMost : x;
  if constexpr (format == Fp8::kE4M3) {
    return c10::Float8_e4m3fn(within).x;
  } else {
    return c10::Float8_e5m2(within).x;
  }
}

/// Two fp8_byte()s; on devices that have FP8 one instruction, for which all NaN are one.
template <Fp8 format>
BERT_HOST_DEVICE uint32_t pack_fp8_pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint16_t pair = 0;
  if constexpr (format == Fp8::kE4M3) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  }
  return pair;
#else
  return fp8_byte<format>(low) | fp8_byte<format>(high) << 8;
#endif
}

/// a b in two words. On the device this is one named instruction. Without the name, the compiler makes a product of 64
/// bits and an addition of zeros of words that were xored.
BERT_HOST_DEVICE void wide_product(uint32_t a, uint32_t b, uint32_t& low, uint32_t& high) {
#ifdef __CUDA_ARCH__
  asm("{\n\t.reg .u64 product;\n\tmul.wide.u32 product, %2, %3;\n\tmov.b64 {%0, %1}, product;\n\t}"
      : "=r"(low), "=r"(high)
      : "r"(a), "r"(b));
#else
  const uint64_t product = static_cast<uint64_t>(a) * b;
  low = static_cast<uint32_t>(product), high = static_cast<uint32_t>(product >> 32);
#endif
}

/// Neither inf nor NaN.
BERT_HOST_DEVICE bool is_finite(float x) { return fabsf(x) <= 3.40282347e+38F; }

inline constexpr float kLog2E = 1.44269504088896341F, kLn2 = 0.69314718055994531F;

/// 2^x; on the device ex2.approx.ftz, within 2 ulp, and 0 below 2^-126.
BERT_HOST_DEVICE float fast_exp2(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}

/// a b, rounded. It is never part of a fused operation, so equal factors give equal products everywhere.
BERT_HOST_DEVICE float rounded_product(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

/// e^x = 2^(x log2 e): 2 ulp, and a relative error of |x| 2^-24 by the product's rounding.
BERT_HOST_DEVICE float fast_exp(float x) { return fast_exp2(x * kLog2E); }

/// 1 / x; on the device rcp.approx.ftz, within 1 ulp, and 0 for |x| > 2^126.
BERT_HOST_DEVICE float fast_reciprocal(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0F / x;
#endif
}

/// 1 / sqrt(x); on the device within 2 ulp.
BERT_HOST_DEVICE float reciprocal_sqrt(float x) {
#ifdef __CUDA_ARCH__
  return rsqrtf(x);
#else
  return 1.0F / std::sqrt(x);
#endif
}

/// sin(pi x). On the device sin() needs a stack for the angles; sinpi() does not.
BERT_HOST_DEVICE double sine_of_pi(double x) {
#ifdef __CUDA_ARCH__
  return sinpi(x);
#else
  return std::sin(3.14159265358979323846 * x);
#endif
}

/// GELU, the tanh form: x (1 + tanh u) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), computed as x sigmoid(2 u). This
/// has no cancellation for negative x, and one exponential. Source: Hendrycks and Gimpel 2016.
struct GeluTanh {
  static constexpr float kSlope = 1.5957691216057308F, kCube = 0.044715F;  // 2 sqrt(2 / pi)

  BERT_HOST_DEVICE static float exponent(float x) {  // -2 u log2 e
    return x * (-kLog2E * kSlope - kLog2E * kSlope * kCube * (x * x));
  }
  BERT_HOST_DEVICE static float value(float x) { return x * fast_reciprocal(1.0F + fast_exp2(exponent(x))); }
  /// s + x s (1 - s) (2 u)' with s = sigmoid(2 u). 1 - s is computed as s e^(-2u), which is exact where s is near 1.
  BERT_HOST_DEVICE static float derivative(float x) {
    const float e = fast_exp2(fminf(exponent(x), 120.0F));  // finite
    const float s = fast_reciprocal(1.0F + e), slope = kSlope + 3.0F * kSlope * kCube * (x * x);
    return s + s * ((s * e) * (x * slope));
  }
};

/// GELU, exact: x Phi(x), where Phi is the normal distribution. With the tail q = Phi(-|x|) it is max(x, 0) - |x| q,
/// which is accurate for negative x, and q = e^(-x^2 / 2) t (a1 + a2 t + ... + a5 t^4) / 2 with t = 1 / (1 + p |x| /
/// sqrt 2). The derivative needs the same exponential as its density.
/// Source: Abramowitz and Stegun 1964, 7.1.26, for erf, with an error of at most 1.5e-7: so 0.75e-7 for q. In fp32,
/// with the errors of the instructions, it is 3.4e-7 for x Phi(x) and 4.1e-7 for its derivative (computed with random
/// errors of that size at 400,001 values from -12 to 12; the tests allow 1e-5). The relative error of x Phi(x) grows to
/// the left, to 2.5e-3 at -5.5, where 1/2 + erf / 2 has no correct bit.
struct GeluErf {
  static constexpr float kP = 0.3275911F * 0.70710678118654752F;  // for |x| instead of |x| / sqrt 2
  static constexpr float kA1 = 0.5F * 0.254829592F, kA2 = 0.5F * -0.284496736F, kA3 = 0.5F * 1.421413741F,
                         kA4 = 0.5F * -1.453152027F, kA5 = 0.5F * 1.061405429F;
  static constexpr float kDensity = 0.39894228040143268F;  // 1 / sqrt(2 pi)
  static constexpr float kFar = 64.0F;                     // from here on the tail is 0 in fp32

  /// size is |x|, at most kFar, so that infinity times a tail of 0 is 0. A NaN of x is in `exponential`. The tail is
  /// polynomial * exponential.
  struct Tail {
    float size, polynomial, exponential;
  };
  BERT_HOST_DEVICE static Tail tail(float x) {
    const float size = fminf(fabsf(x), kFar), t = fast_reciprocal(1.0F + kP * size);
    return {size, t * (kA1 + t * (kA2 + t * (kA3 + t * (kA4 + t * kA5)))), fast_exp2(-0.5F * kLog2E * x * x)};
  }
  BERT_HOST_DEVICE static float value(float x) {
    const Tail q = tail(x);
    return fmaxf(x, 0.0F) - q.size * (q.polynomial * q.exponential);
  }
  BERT_HOST_DEVICE static float derivative(float x) {
    const Tail q = tail(x);
    const float right = (q.size * kDensity - q.polynomial) * q.exponential;  // |x| density - tail
    return x < 0.0F ? -right : 1.0F + right;
  }
};

}  // namespace bert
