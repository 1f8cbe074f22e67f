// The word for the device of a process, in configurations and on command lines.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace bert {

/// kCudaIfThere: the CPU if there is no GPU.
enum class DeviceChoice : uint8_t { kCudaIfThere, kCpu, kCuda };
inline std::span<const char* const> names_of(DeviceChoice /*type*/) {
  static constexpr std::array<const char*, 3> kNames = {"auto", "cpu", "cuda"};
  return kNames;
}

}  // namespace bert
