#define BERT_SIMD_NAME avx2
#define BERT_SIMD_BYTES 32
#include "cuda_ext/simd/vectors.inc"

namespace bert::simd {
const Kernels& avx2_kernels() { return avx2::kKernels; }
}  // namespace bert::simd
