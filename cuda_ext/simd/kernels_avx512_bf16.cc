#define BERT_SIMD_NAME avx512_bf16
#define BERT_SIMD_BYTES 64
#include "cuda_ext/simd/vectors.inc"

namespace bert::simd {
const Kernels& avx512_bf16_kernels() { return avx512_bf16::kKernels; }
}  // namespace bert::simd
