#include "cuda_ext/simd/capability.h"

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

}  // namespace

CpuCapability cpu_capability() {
  static const CpuCapability capability = detect();
  return capability;
}

}  // namespace bert
