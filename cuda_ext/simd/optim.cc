#include "cuda_ext/simd/optim.h"

namespace bert {

const OptimKernels& optim_kernels(CpuCapability capability) {
  if (capability == CpuCapability::kAvx512) return simd_avx512::kOptimKernels;
  return capability == CpuCapability::kAvx2 ? simd_avx2::kOptimKernels : simd_plain::kOptimKernels;
}

}  // namespace bert
