#define BERT_SIMD_NAMESPACE simd_plain
#include "cuda_ext/simd/optim.inc"
