// The current stream of c10/cuda/CUDAStream.h as far as cuda_ext/kernels/launch.h uses it, for tests without CUDA. The
// stream is null where no CUDAGuard lives.
#pragma once

#include <c10/core/Device.h>
#include <c10/cuda/CUDAGuard.h>

struct CUstream_st {};

namespace c10::cuda {

inline CUstream_st current_stream;

struct CUDAStream {
  CUstream_st* value;
  [[nodiscard]] CUstream_st* stream() const { return value; }
};

inline CUDAStream getCurrentCUDAStream(DeviceIndex /*device*/) {
  return {CUDAGuard::alive > 0 ? &current_stream : nullptr};
}

}  // namespace c10::cuda
