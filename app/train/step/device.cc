#include "app/train/step/device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/cuda.h>
#include <torch/types.h>
#ifdef USE_CUDA
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#endif

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "app/system/errors.h"
#include "app/system/machine/memory.h"
#include "cuda_ext/ops.h"

namespace bert {

c10::Device select_device(const std::string& name, int64_t local_rank) {
  const bool available = torch::cuda::is_available();
  if (name == "cuda" && !available)
    throw ConfigError("device cuda: no usable CUDA device; `bert doctor` says what is there");
  if (name == "cpu" || !available) return c10::Device(c10::kCPU);
  const auto devices = static_cast<int64_t>(torch::cuda::device_count());
  const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(local_rank % devices));
  c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
  return device;
}

int64_t free_memory(c10::Device device, int64_t local_size) {
  if (!device.is_cuda()) return available_memory() / local_size;
  int64_t bytes = 0;
#ifdef USE_CUDA
  const c10::cuda::CUDAGuard on(device);
  size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  bytes = static_cast<int64_t>(free);
#endif
  return bytes;
}

void synchronize(c10::Device device) {
  if (device.is_cuda()) torch::cuda::synchronize(device.index());
}

double measure_copy(c10::Device device) {
  const torch::NoGradGuard no_grad;
  const int64_t bytes = device.is_cuda() ? int64_t{1} << 30 : int64_t{1} << 26;  // more than a cache holds
  const torch::Tensor from = torch::ones({bytes}, torch::TensorOptions().dtype(torch::kByte).device(device)),
                      to = torch::zeros_like(from);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 4; ++i) {
    synchronize(device);
    const auto start = std::chrono::steady_clock::now();
    to.copy_(from);
    synchronize(device);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return 2.0 * static_cast<double>(bytes) / best;
}

double measure_gemm(c10::Device device, c10::ScalarType dtype) {
  const torch::NoGradGuard no_grad;
  const int64_t size = device.is_cuda() ? 8192 : 768;
  // Random values: the clock of a GPU depends on the number of bits that change. A separate generator keeps the run's
  // random numbers as they are.
  auto generator = at::make_generator<at::CPUGeneratorImpl>(0);
  const torch::Tensor a = torch::randn({size, size}, generator).to(device, dtype);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 4; ++i) {
    const auto start = std::chrono::steady_clock::now();
    ops::linear(a, a, /*bias=*/{});  // the backend that the model's products use
    synchronize(device);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return 2.0 * std::pow(static_cast<double>(size), 3) / best;
}

}  // namespace bert
