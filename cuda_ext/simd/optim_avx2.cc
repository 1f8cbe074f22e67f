#define BERT_SIMD_NAMESPACE simd_avx2
#include "cuda_ext/simd/optim.inc"
