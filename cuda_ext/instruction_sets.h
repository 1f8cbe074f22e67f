// The instruction sets that the operators use on this machine's processor.
#pragma once

#include <string>

namespace bert {

/// "avx512_bf16 in loops, amx in products": the set of the vector code (plain, avx2, avx512, avx512_bf16, amx),
/// and the widest that oneDNN's products may use. BERT_CPU_CAPABILITY lowers the first, ONEDNN_MAX_CPU_ISA the second.
[[nodiscard]] std::string instruction_sets();

}  // namespace bert
