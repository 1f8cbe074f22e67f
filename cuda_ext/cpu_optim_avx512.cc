#define BERT_SIMD_NAMESPACE simd_avx512
#include "cuda_ext/cpu_simd_optim.inc"
