// The optimizer's vector kernels for the CPU, one table per instruction set. Plain data only: cuda_ext/simd/optim.inc
// includes it.
#pragma once

#include "cuda_ext/simd/capability.h"

namespace bert {

enum class ElementType : signed char { kFloat, kHalf, kBFloat16 };
enum class CopyType : signed char { kNone, kHalf, kBFloat16 };

/// A run of elements of one parameter, fp32, its moving average (or nullptr), and the low-precision parameter that
/// receives the rounded result (or nullptr).
struct OptimChunk {
  float* param;
  float* exp_avg;
  float* exp_avg_sq;
  float* ema;
  const float* grad;
  void* copy;
  CopyType copy_type;
  long long n;
};

/// See multi_tensor.h for the formulas.
struct OptimScalars {
  double lr;
  float multiplier, inv_correction1, inv_correction2;  // reciprocals: divisions would bound the kernels, not memory
  float one_minus_beta1, one_minus_beta2, beta3, weight_decay;
  float eps, eps_inside;  // outside and inside the square root; one of them is 0
  float ema_share;        // of the new parameter in its moving average
  bool decoupled;
};

/// Sums of squares of parameter and update over a chunk.
struct LambNorms {
  double param, update;
};

struct OptimKernels {
  double (*sum_of_squares)(const void* x, ElementType type, long long n);
  // In place, rounded to the type; false when an element was inf or NaN.
  bool (*scale)(void* x, ElementType type, long long n, float factor);
  LambNorms (*lamb_moments)(const OptimChunk& chunk, const OptimScalars& scalars);
  void (*lamb_apply)(const OptimChunk& chunk, const OptimScalars& scalars,
                     float rate);  // rate: lr times the trust ratio
  void (*adamw)(const OptimChunk& chunk, const OptimScalars& scalars);
};

namespace simd_plain {
extern const OptimKernels kOptimKernels;
}
namespace simd_avx2 {
extern const OptimKernels kOptimKernels;
}
namespace simd_avx512 {
extern const OptimKernels kOptimKernels;
}

/// The loops for an instruction set that this CPU has.
[[nodiscard]] const OptimKernels& optim_kernels(CpuCapability capability);

}  // namespace bert
