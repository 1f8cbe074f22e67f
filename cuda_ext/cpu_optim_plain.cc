#define BERT_SIMD_NAMESPACE simd_plain
#include "cuda_ext/cpu_simd_optim.inc"
