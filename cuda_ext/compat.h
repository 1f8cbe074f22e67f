// What differs between builds with and without CUDA, and between LibTorch's versions: the only file that asks.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#ifdef USE_CUDA
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#endif

// LibTorch 2.8 has neither the operator nor a way to ask for cuDNN's version; its cuDNN, 9.10, would not be chosen either.
#if __has_include(<ATen/ops/_cudnn_attention_backward.h>)
#define BERT_CUDNN_ATTENTION
#endif

namespace bert::compat {

/// While one lives, LibTorch throws where the host would wait for a CUDA device.
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

/// How often LibTorch's allocator has asked the driver for memory of this device; 0 for the CPU.
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
