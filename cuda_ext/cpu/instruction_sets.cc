#include "cuda_ext/instruction_sets.h"

#include <ATen/cpu/Utils.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "cuda_ext/simd/kernels.h"

namespace bert {

std::string instruction_sets() {
  const char* const variable = std::getenv("ONEDNN_MAX_CPU_ISA");
  std::string limit = variable == nullptr ? "DEFAULT" : variable;
  std::transform(limit.begin(), limit.end(), limit.begin(), [](unsigned char c) { return std::toupper(c); });
  const bool limited = limit != "DEFAULT" && limit != "ALL";
  std::string products = at::cpu::init_amx() ? "amx" : simd::kernels().name;
  if (limited) products = "at most " + limit;
  return std::string(simd::kernels().name) + " in loops, " + products + " in products";
}

}  // namespace bert
