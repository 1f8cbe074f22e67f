#define BERT_SIMD_NAME plain
#define BERT_SIMD_BYTES 16
#include "cuda_ext/cpu_simd.inc"

namespace bert::simd {
const Kernels& plain_kernels() { return plain::kKernels; }
}  // namespace bert::simd
