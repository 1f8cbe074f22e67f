#include "app/device/device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/cuda.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "app/system/errors.h"
#include "app/system/machine/memory.h"
#include "cuda_ext/compat.h"
#include "cuda_ext/ops.h"

namespace bert {

c10::Device select_device(DeviceChoice choice, int64_t local_rank) {
  if (choice == DeviceChoice::kCpu) return c10::Device(c10::kCPU);  // CUDA is not even started
  const bool available = torch::cuda::is_available();
  if (choice == DeviceChoice::kCuda && !available) {
    const compat::NoDevice none = compat::why_no_device();
    throw ConfigError("device cuda: no usable CUDA device: " + none.reason +
                      (none.remedy.empty() ? "" : "; " + none.remedy) + "; `bert doctor` says what is there");
  }
  if (!available) return c10::Device(c10::kCPU);
  const auto devices = static_cast<int64_t>(torch::cuda::device_count());
  const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(local_rank % devices));
  c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
  return device;
}

int64_t free_memory(c10::Device device, int64_t local_size) {
  return device.is_cuda() ? compat::free_memory(device) : available_memory() / local_size;
}

void synchronize(c10::Device device) {
  if (device.is_cuda()) torch::cuda::synchronize(device.index());
}

double shortest_time(c10::Device device, const std::function<void()>& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 4; ++i) {
    synchronize(device);
    const auto start = std::chrono::steady_clock::now();
    work();
    synchronize(device);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

double measure_copy(c10::Device device) {
  const torch::NoGradGuard no_grad;
  const int64_t bytes = device.is_cuda() ? int64_t{1} << 30 : int64_t{1} << 26;  // more than a cache holds
  const torch::Tensor from = torch::ones({bytes}, torch::TensorOptions().dtype(torch::kByte).device(device)),
                      to = torch::zeros_like(from);
  return 2.0 * static_cast<double>(bytes) / shortest_time(device, [&] { to.copy_(from); });
}

double measure_gemm(c10::Device device, c10::ScalarType dtype) {
  const torch::NoGradGuard no_grad;
  constexpr int64_t kSmallest = 1024, kLargest = 8192;  // of a GPU; a slow one takes minutes for the largest
  int64_t size = device.is_cuda() ? kSmallest : 768;
  for (;;) {
    // Random values: the clock of a GPU depends on the number of bits that change. A separate generator keeps the run's
    // random numbers as they are.
    auto generator = at::make_generator<at::CPUGeneratorImpl>(0);
    const torch::Tensor a = torch::randn({size, size}, generator).to(device, dtype);
    // The backend that the model's products use.
    const double seconds =
        shortest_time(device, [&] { dtype == torch::kChar ? at::_int_mm(a, a) : ops::linear(a, a, /*bias=*/{}); });
    if (!device.is_cuda() || seconds >= kLongWork || size == kLargest)
      return 2.0 * std::pow(static_cast<double>(size), 3) / seconds;
    size *= 2;
  }
}

std::vector<std::pair<std::string, double>> product_rates() {
  std::vector<std::pair<std::string, double>> rates;
  for (const auto& [name, dtype] :
       {std::pair{"fp32", torch::kFloat}, {"bf16", torch::kBFloat16}, {"int8", torch::kChar}})
    rates.emplace_back(name, 1e-12 * measure_gemm(torch::kCPU, dtype));
  return rates;
}

}  // namespace bert
