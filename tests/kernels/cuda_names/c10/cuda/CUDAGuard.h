// The guard of c10/cuda/CUDAGuard.h as far as cuda_ext/cuda/ uses it, for tests without CUDA.
#pragma once

#include <c10/core/Device.h>

namespace c10::cuda {

class CUDAGuard {
 public:
  explicit CUDAGuard(Device /*device*/) { ++alive; }
  CUDAGuard(const CUDAGuard&) = delete;
  ~CUDAGuard() { --alive; }

  static inline int alive = 0;
};

}  // namespace c10::cuda
