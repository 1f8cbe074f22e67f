#include "cuda_ext/simd/kernels.h"

#include <atomic>
#include <string_view>

#include "cuda_ext/simd/capability.h"

namespace bert::simd {
namespace {

/// The table of that name, or null if this machine lacks the instructions.
const Kernels* table(std::string_view name) {
#if defined(__x86_64__)
  if (name == "amx" && table("avx512_bf16") != nullptr && amx_ready()) return &amx_kernels();
  if (name == "avx512_bf16" && cpu_capability() >= CpuCapability::kAvx512 && __builtin_cpu_supports("avx512bf16"))
    return &avx512_bf16_kernels();
  if (name == "avx512" && cpu_capability() >= CpuCapability::kAvx512) return &avx512_kernels();
  if (name == "avx2" && cpu_capability() >= CpuCapability::kAvx2) return &avx2_kernels();
#endif
  return name == "plain" ? &plain_kernels() : nullptr;
}

std::atomic<const Kernels*>& chosen() {
  static std::atomic<const Kernels*> kernels = [] {
    for (const char* name : {"amx", "avx512_bf16", "avx512", "avx2"}) {
      if (const Kernels* found = table(name)) return found;
    }
    return &plain_kernels();
  }();
  return kernels;
}

}  // namespace

const Kernels& kernels() { return *chosen(); }

bool choose_kernels(const char* name) {
  const Kernels* found = table(name);
  if (found != nullptr) chosen() = found;
  return found != nullptr;
}

}  // namespace bert::simd
