// The widest instruction set of the vector code that this CPU runs (cuda_ext/README.md, "Vector code for the CPU").
#pragma once

namespace bert {

enum class CpuCapability { kPlain, kAvx2, kAvx512 };

/// The widest set that both the CPU and the operating system support. AVX2 includes FMA; AVX-512 means F, BW, DQ and
/// VL. BERT_CPU_CAPABILITY=plain|avx2 in the environment lowers it. It is determined once per process.
[[nodiscard]] CpuCapability cpu_capability();

/// True if the CPU multiplies tiles of bf16 (AMX), and the operating system has given this process room for them, which
/// the first call asks for.
[[nodiscard]] bool amx_ready();

}  // namespace bert
