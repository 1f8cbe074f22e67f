// The host files of cuda_ext/cuda and cuda_ext/multi_tensor with tensors of the CPU: their launches run in the emulator.
#pragma once

#include <ATen/Context.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdint>
#include <limits>
#include <set>

#include "tests/kernels/cuda_emulator.h"
#include "tests/testing.h"

namespace bert::testing {

/// Makes all memory a buffer of the emulator, and fills new tensors with NaN.
class EmulatedDevice {
 public:
  EmulatedDevice() {
    emulator::add_buffer(nullptr, std::numeric_limits<size_t>::max() / 2);
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  }
  EmulatedDevice(const EmulatedDevice&) = delete;
  ~EmulatedDevice() {
    at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
    emulator::remove_buffer(nullptr);
  }
};

/// Runs `work`, and checks that its kernels, if there are any, ran on the current stream of a device that a guard had
/// chosen. The stream is null where no guard lives.
template <class Work>
void check_launches(bool kernels, const Work& work) {
  const int64_t before = emulator::launches();
  emulator::take_streams();
  work();
  CHECK((emulator::launches() > before) == kernels);
  CHECK(emulator::take_streams() ==
        (kernels ? std::set<const void*>{&c10::cuda::current_stream} : std::set<const void*>{}));
  CHECK(c10::cuda::CUDAGuard::alive == 0);
}

}  // namespace bert::testing
