#define BERT_SIMD_NAME avx512
#define BERT_SIMD_BYTES 64
#include "cuda_ext/simd/vectors.inc"

namespace bert::simd {
const Kernels& avx512_kernels() { return avx512::kKernels; }
}  // namespace bert::simd
