// The device that a process computes on.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "app/config/device_choice.h"

namespace bert {

/// The device of `choice`; of several CUDA devices that of `local_rank`. A CUDA device becomes the current device of this
/// thread. Throws ConfigError for kCuda without a CUDA device.
c10::Device select_device(DeviceChoice choice, int64_t local_rank);

/// Bytes that this process can still take on the device: of its own GPU, or its share of the machine's memory, which
/// `local_size` ranks divide.
int64_t free_memory(c10::Device device, int64_t local_size);

/// Waits until the device has done all work that was issued to it.
void synchronize(c10::Device device);

/// Seconds until the device has done `work`, the shortest of four times.
double shortest_time(c10::Device device, const std::function<void()>& work);

/// Seconds of work on a GPU beside which the time of a launch, 1e-5, is small.
constexpr double kLongWork = 1e-3;

/// Measures the bytes/s of a copy in the device's memory, of both that are read and that are written.
double measure_copy(c10::Device device);

/// Measures the FLOP/s of a square matrix product in `dtype`: the reference rate of the model FLOP utilisation (MFU). On
/// CUDA the size grows until a product takes a millisecond, up to 8,192. at::kChar: operations/s of a product of int8,
/// on the CPU.
double measure_gemm(c10::Device device, c10::ScalarType dtype);

/// The rates of measure_gemm() on the CPU in 1e12/s, by precision: fp32, bf16, int8.
std::vector<std::pair<std::string, double>> product_rates();

}  // namespace bert
