#include "cuda_ext/compat.h"

#include <c10/util/Exception.h>

#ifdef USE_CUDA
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <vector>
#endif

namespace bert::compat {

#ifdef USE_CUDA
namespace {

/// "13.0" for 13000, as CUDA counts.
std::string version_text(int version) {
  constexpr int kMajor = 1000, kMinor = 10;
  return std::to_string(version / kMajor) + "." + std::to_string(version % kMajor / kMinor);
}

}  // namespace

ForbidSynchronization::ForbidSynchronization() {
  c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR);
}
ForbidSynchronization::~ForbidSynchronization() {
  c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED);
}

struct DeviceGraphs::Impl {
  std::vector<std::unique_ptr<at::cuda::CUDAGraph>> graphs;
  at::cuda::MempoolId_t pool = at::cuda::graph_pool_handle();
};
DeviceGraphs::DeviceGraphs() : impl_(std::make_unique<Impl>()) {}
DeviceGraphs::~DeviceGraphs() = default;

size_t DeviceGraphs::capture(const std::function<void()>& body) {
  auto graph = std::make_unique<at::cuda::CUDAGraph>();
  // Thread-local, because loaders allocate pinned memory and NCCL's watchdog asks for events meanwhile.
  graph->capture_begin(impl_->pool, cudaStreamCaptureModeThreadLocal);
  try {
    body();
  } catch (...) {
    try {
      graph->capture_end();
    } catch (const c10::Error&) {  // the capture was broken
    }
    cudaGetLastError();
    throw;
  }
  graph->capture_end();
  impl_->graphs.push_back(std::move(graph));
  return impl_->graphs.size() - 1;
}

void DeviceGraphs::replay(size_t graph) { impl_->graphs.at(graph)->replay(); }

void release_cached_memory() { c10::cuda::CUDACachingAllocator::emptyCache(); }

int64_t device_allocations(c10::Device device) {
  return device.is_cuda() ? c10::cuda::CUDACachingAllocator::getDeviceStats(device.index()).num_device_alloc : 0;
}

int64_t peak_memory(c10::Device device) {
  return device.is_cuda() ? c10::cuda::CUDACachingAllocator::getDeviceStats(device.index()).allocated_bytes[0].peak : 0;
}

int64_t free_memory(c10::Device device) {
  const c10::cuda::CUDAGuard on(device);
  size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return static_cast<int64_t>(free);
}

int64_t total_memory(c10::Device device) {
  return static_cast<int64_t>(at::cuda::getDeviceProperties(device.index())->totalGlobalMem);
}

int compute_capability(c10::Device device) {
  if (!device.is_cuda()) return 0;
  const cudaDeviceProp* const properties = at::cuda::getDeviceProperties(device.index());
  return 10 * properties->major + properties->minor;
}

std::string device_name(c10::Device device) {
  return device.is_cuda() ? at::cuda::getDeviceProperties(device.index())->name : "";
}

NoDevice why_no_device() {
  int driver = 0, runtime = 0, devices = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  const cudaError_t error = cudaGetDeviceCount(&devices);
  cudaGetLastError();  // LibTorch would report it again
  if (driver == 0) return {.reason = "there is no NVIDIA driver", .remedy = ""};
  if (error == cudaErrorInsufficientDriver) {
    return {.reason = "the NVIDIA driver is too old: it is for CUDA " + version_text(driver) +
                      ", and LibTorch is for " + version_text(runtime),
            .remedy = "install a newer driver"};
  }
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (error == cudaErrorNoDevice || error == cudaSuccess) {
    return {.reason = visible == nullptr ? "the driver sees none"
                                         : std::string("CUDA_VISIBLE_DEVICES=\"") + visible + "\" names none",
            .remedy = ""};
  }
  return {.reason = std::string("CUDA does not start: ") + cudaGetErrorString(error),
          .remedy = "look at nvidia-smi and at the kernel's log (dmesg)"};
}
#else
ForbidSynchronization::ForbidSynchronization() = default;
ForbidSynchronization::~ForbidSynchronization() = default;
struct DeviceGraphs::Impl {};
DeviceGraphs::DeviceGraphs() { TORCH_CHECK(false, "this build is without CUDA (app/setup.sh --cuda)"); }
DeviceGraphs::~DeviceGraphs() = default;
size_t DeviceGraphs::capture(const std::function<void()>& /*body*/) { return 0; }
void DeviceGraphs::replay(size_t /*graph*/) {}
void release_cached_memory() {}
int64_t device_allocations(c10::Device /*device*/) { return 0; }
int64_t peak_memory(c10::Device /*device*/) { return 0; }
int64_t free_memory(c10::Device /*device*/) { return 0; }
int64_t total_memory(c10::Device /*device*/) { return 0; }
int compute_capability(c10::Device /*device*/) { return 0; }
std::string device_name(c10::Device /*device*/) { return ""; }
NoDevice why_no_device() { return {.reason = "this build is without CUDA (app/setup.sh --cuda)", .remedy = ""}; }
#endif

}  // namespace bert::compat
