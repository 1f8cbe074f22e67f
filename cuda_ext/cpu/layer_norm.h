// LayerNorm of every kind of input, for layer_norm.cc and embedding.cc.
#pragma once

#include "cuda_ext/cpu/tensors.h"

namespace bert::cpu {

struct Statistics {
  Tensor mean, rstd;
};
Statistics empty_statistics(int64_t rows, const Tensor& like);

/// Runs the forward of all rows. Parameters are fp32.
void normalise(simd::LayerNorm arguments, int64_t rows, const Tensor& beta, double eps, Tensor& y,
               Statistics& statistics);

/// Returns dgamma | dbeta | dbias, [sums * columns].
Tensor normalise_backward(simd::LayerNorm arguments, int64_t rows, int64_t sums, const Tensor& grad, const Tensor& mean,
                          const Tensor& rstd);

}  // namespace bert::cpu
