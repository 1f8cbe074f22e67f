#define BERT_SIMD_NAME avx512_bf16
#define BERT_SIMD_BYTES 64
#include "cuda_ext/simd/vectors.inc"
// Attention by AMX, for the same set.
#include "cuda_ext/simd/attention_amx.inc"

namespace bert::simd {

const Kernels& avx512_bf16_kernels() { return avx512_bf16::kKernels; }

const Kernels& amx_kernels() {
  static const Kernels kernels = [] {
    Kernels some = avx512_bf16::kKernels;
    some.name = "amx";
    some.attention = avx512_bf16::attention_amx;
    some.attention_backward = avx512_bf16::attention_backward_amx;
    return some;
  }();
  return kernels;
}

}  // namespace bert::simd
