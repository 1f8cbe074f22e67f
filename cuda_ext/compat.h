// The differences between builds with and without CUDA, and between versions of LibTorch. No other file asks for them.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

// LibTorch 2.8 lacks the operator and the query of cuDNN's version. Its cuDNN is 9.10, which would not be chosen in any
// case.
#if __has_include(<ATen/ops/_cudnn_attention_backward.h>)
#define BERT_CUDNN_ATTENTION
#endif

namespace bert::compat {

/// While an object lives, LibTorch throws at each place that makes the host wait for a CUDA device.
class ForbidSynchronization {
 public:
  ForbidSynchronization();
  ~ForbidSynchronization();
  ForbidSynchronization(const ForbidSynchronization&) = delete;
  ForbidSynchronization& operator=(const ForbidSynchronization&) = delete;
};

/// Work that is captured once and replayed: CUDA graphs. Their temporary memory is one pool of LibTorch's allocator, so
/// replays must follow each other on one stream, and nothing that was allocated during a capture may be used after it.
class DeviceGraphs {
 public:
  DeviceGraphs();
  ~DeviceGraphs();
  DeviceGraphs(const DeviceGraphs&) = delete;
  DeviceGraphs& operator=(const DeviceGraphs&) = delete;
  /// Captures what `body` launches on the current stream, which must be one of LibTorch's pool; none of it runs. Other
  /// threads may use the device. Returns the graph's number, from 0. Throws what `body` throws, and c10::Error if
  /// something in it cannot be captured.
  size_t capture(const std::function<void()>& body);
  void replay(size_t graph);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Gives the memory that LibTorch's allocator caches back to the driver.
void release_cached_memory();

/// Number of times that LibTorch's allocator asked the driver for memory of this device; 0 for the CPU.
int64_t device_allocations(c10::Device device);

/// The most bytes of tensors that this process has had on the device; 0 for the CPU.
int64_t peak_memory(c10::Device device);

/// Bytes of a CUDA device's memory: those that nobody uses, and all of them.
int64_t free_memory(c10::Device device);
int64_t total_memory(c10::Device device);

/// A CUDA device's compute capability, 90 for 9.0; 0 for the CPU.
int compute_capability(c10::Device device);

/// A CUDA device's name, "NVIDIA H200"; "" for the CPU.
std::string device_name(c10::Device device);

/// Why no CUDA device can be used.
struct NoDevice {
  std::string reason;
  std::string remedy;  // "": nothing is wrong, there is just none
};
/// To be called if torch::cuda::is_available() is false.
NoDevice why_no_device();

}  // namespace bert::compat
