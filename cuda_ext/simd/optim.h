// The optimizer's vector kernels for the CPU, one table per instruction set. This header has plain data only, because
// cuda_ext/simd/optim.inc includes it.
#pragma once

#include "cuda_ext/scalar/optimizer_types.h"
#include "cuda_ext/simd/capability.h"

namespace bert {

/// A run of elements of one fp32 parameter, with its moving average (or nullptr) and the low-precision parameter that
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

/// Sums of squares over a chunk: of the parameter and the update (LAMB), or of g / max(sqrt(v), eps) in `update`
/// (StableAdamW).
struct LambNorms {
  double param, update;
};

struct OptimKernels {
  double (*sum_of_squares)(const void* x, ElementType type, long long n);
  // In place, rounded to the type. Returns false if an element was inf or NaN.
  bool (*scale)(void* x, ElementType type, long long n, float factor);
  LambNorms (*lamb_moments)(const OptimChunk& chunk, const OptimScalars& scalars);
  LambNorms (*stable_moments)(const OptimChunk& chunk, const OptimScalars& scalars);
  void (*lamb_apply)(const OptimChunk& chunk, const OptimScalars& scalars,
                     float rate);  // rate: lr times the trust ratio; of StableAdamW too: lr / max(1, RMS)
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
