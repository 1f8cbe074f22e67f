// Scalar arithmetic of the kernels, for device and host. Activations are stored as float, c10::Half or c10::BFloat16
// and computed in float. Device intrinsics stand here only, each behind a name that has a host twin.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>

#include "cuda_ext/philox.h"

namespace bert {

BERT_HOST_DEVICE float to_float(float x) { return x; }
BERT_HOST_DEVICE float to_float(c10::Half x) { return static_cast<float>(x); }
BERT_HOST_DEVICE float to_float(c10::BFloat16 x) { return static_cast<float>(x); }

/// Rounds to nearest even.
template <class T>
BERT_HOST_DEVICE T from_float(float x) {
  return static_cast<T>(x);
}

/// Neither inf nor NaN.
BERT_HOST_DEVICE bool is_finite(float x) { return fabsf(x) <= 3.40282347e+38F; }

/// e^x; on the device ex2.approx, 2 ulp and a relative error that grows with |x| to 1e-5 near the overflow (CUDA
/// programming guide).
BERT_HOST_DEVICE float fast_exp(float x) {
#ifdef __CUDA_ARCH__
  return __expf(x);
#else
  return std::exp(x);
#endif
}

/// a / b; on the device within 2 ulp, and 0 for |b| > 2^126.
BERT_HOST_DEVICE float fast_divide(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fdividef(a, b);
#else
  return a / b;
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

/// GELU, the tanh form: x (1 + tanh u) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), written as x sigmoid(2 u): no
/// cancellation for negative x, and one exponential. Source: Hendrycks and Gimpel 2016.
struct GeluTanh {
  static constexpr float kSlope = 1.5957691216057308F, kCube = 0.044715F;  // 2 sqrt(2 / pi)

  BERT_HOST_DEVICE static float value(float x) {
    return fast_divide(x, 1.0F + fast_exp(-kSlope * (x + kCube * x * x * x)));
  }
  BERT_HOST_DEVICE static float derivative(float x) {
    const float sigmoid = fast_divide(1.0F, 1.0F + fast_exp(-kSlope * (x + kCube * x * x * x)));
    return sigmoid + x * sigmoid * (1.0F - sigmoid) * kSlope * (1.0F + 3.0F * kCube * x * x);
  }
};

/// GELU, exact: x Phi(x), Phi the normal distribution.
struct GeluErf {
  static constexpr float kRootHalf = 0.70710678118654752F, kDensity = 0.39894228040143268F;  // 1 / sqrt(2 pi)

  BERT_HOST_DEVICE static float distribution(float x) { return 0.5F + 0.5F * erff(x * kRootHalf); }
  BERT_HOST_DEVICE static float value(float x) { return x * distribution(x); }
  BERT_HOST_DEVICE static float derivative(float x) { return distribution(x) + x * kDensity * fast_exp(-0.5F * x * x); }
};

}  // namespace bert
