#define BERT_SIMD_NAME plain
#define BERT_SIMD_BYTES 16
#include "cuda_ext/simd/vectors.inc"

namespace bert::simd {
const Kernels& plain_kernels() { return plain::kKernels; }
}  // namespace bert::simd
