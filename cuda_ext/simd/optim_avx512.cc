#define BERT_SIMD_NAMESPACE simd_avx512
#include "cuda_ext/simd/optim.inc"
