// LibTorch's allocator takes a tracker for the devices that it knows, and it knows none before CUDA starts. So the
// tracker comes with the first tensor.
#include <ATen/Context.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/empty_strided_native.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <mutex>

#include "tests/null_device/operators/operators.h"

namespace null_device {
namespace {

using c10::CachingDeviceAllocator::TraceEntry;

std::vector<std::function<void()>>& starts() {
  static auto* const instance = new std::vector<std::function<void()>>;
  return *instance;
}

void track(const TraceEntry& entry) {
  const void* const block = reinterpret_cast<const void*>(entry.addr_);
  const bool for_graphs = entry.mempool_ != c10::MempoolId_t{0, 0};
  if (entry.action_ == TraceEntry::ALLOC) block_allocated(block, entry.size_, for_graphs);
  if (entry.action_ == TraceEntry::FREE_COMPLETED) block_freed(block);
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool> pinned, std::optional<at::MemoryFormat> format) {
  follow_allocator();
  return at::native::empty_cuda(size, type, layout, device, pinned, format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type,
                         std::optional<at::Layout> layout, std::optional<at::Device> device,
                         std::optional<bool> pinned) {
  follow_allocator();
  return at::native::empty_strided_cuda(size, stride, type, layout, device, pinned);
}

}  // namespace

void at_start(std::function<void()> start) { starts().push_back(std::move(start)); }

void follow_allocator() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const std::function<void()>& start : starts()) start();
    at::globalContext().lazyInitDevice(at::kCUDA);
    c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(track);
  });
}

void replace_allocation(torch::Library& aten) {
  aten.impl("empty.memory_format", TORCH_FN(empty));
  aten.impl("empty_strided", TORCH_FN(empty_strided));
}

}  // namespace null_device
