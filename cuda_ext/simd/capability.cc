#include "cuda_ext/simd/capability.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstdlib>
#include <string_view>

namespace bert {
namespace {

CpuCapability detect() {
  const char* variable = std::getenv("BERT_CPU_CAPABILITY");
  const std::string_view limit = variable == nullptr ? "" : variable;
  if (limit == "plain" || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
    return CpuCapability::kPlain;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return limit == "avx2" || !avx512 ? CpuCapability::kAvx2 : CpuCapability::kAvx512;
}

#if defined(__x86_64__)
/// Linux gives a process the 8 KB of tiles if it asks (Documentation/arch/x86/xstate.rst).
bool ask_for_tiles() {
  constexpr unsigned kBf16 = 1u << 22, kTiles = 1u << 24;  // of leaf 7 (Intel's manual, CPUID)
  constexpr long kRequest = 0x1023, kTileData = 18;        // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kBf16) == 0 || (d & kTiles) == 0) return false;
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}
#endif

}  // namespace

bool amx_ready() {
#if defined(__x86_64__)
  static const bool ready = ask_for_tiles();
  return ready;
#else
  return false;
#endif
}

CpuCapability cpu_capability() {
  static const CpuCapability capability = detect();
  return capability;
}

}  // namespace bert
