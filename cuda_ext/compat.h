// The differences between builds with and without CUDA, and between versions of LibTorch. No other file asks for them.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#ifdef USE_CUDA
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#endif

// LibTorch 2.8 lacks the operator and the query of cuDNN's version. Its cuDNN is 9.10, which would not be chosen in any
// case.
#if __has_include(<ATen/ops/_cudnn_attention_backward.h>)
#define BERT_CUDNN_ATTENTION
#endif

namespace bert::compat {

/// While an object lives, LibTorch throws at each place that makes the host wait for a CUDA device.
class ForbidSynchronization {
 public:
#ifdef USE_CUDA
  ForbidSynchronization() { c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR); }
  ~ForbidSynchronization() { c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED); }
#else
  ForbidSynchronization() {}
  ~ForbidSynchronization() {}
#endif
  ForbidSynchronization(const ForbidSynchronization&) = delete;
  ForbidSynchronization& operator=(const ForbidSynchronization&) = delete;
};

/// Number of times that LibTorch's allocator asked the driver for memory of this device; 0 for the CPU.
inline int64_t device_allocations([[maybe_unused]] c10::Device device) {
#ifdef USE_CUDA
  if (device.is_cuda()) return c10::cuda::CUDACachingAllocator::getDeviceStats(device.index()).num_device_alloc;
#endif
  return 0;
}

/// A CUDA device's compute capability, 90 for 9.0; 0 for the CPU.
inline int compute_capability([[maybe_unused]] c10::Device device) {
#ifdef USE_CUDA
  if (device.is_cuda()) {
    const cudaDeviceProp* const properties = at::cuda::getDeviceProperties(device.index());
    return 10 * properties->major + properties->minor;
  }
#endif
  return 0;
}

/// A CUDA device's name, "NVIDIA H200"; "" for the CPU.
inline std::string device_name([[maybe_unused]] c10::Device device) {
#ifdef USE_CUDA
  if (device.is_cuda()) return at::cuda::getDeviceProperties(device.index())->name;
#endif
  return "";
}

}  // namespace bert::compat
