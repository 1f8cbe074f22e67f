// Blocks of operators whose input also is a residual.
#pragma once

#include <ATen/core/Tensor.h>

#include "cuda_ext/ops.h"

namespace bert::ops {

/// The result of a block, and its input once more, for the residual. On CUDA the gradient of the residual is added
/// within the product that gives the gradient of the input: Note [Gradients beside a residual],
/// dispatch/linear_gradients.h.
struct BesideResidual {
  at::Tensor result, residual;
};

/// qkv_linear().
BesideResidual qkv_linear_beside_residual(const at::Tensor& x, const QkvParameters& parameters);

/// linear() without a bias.
BesideResidual linear_beside_residual(const at::Tensor& x, const at::Tensor& weight);

/// gelu(x wide^T + bias) narrow^T. x [T, H]. On CUDA in bf16 and fp16, bias and the tanh form are parts of the
/// products: Note [Products with epilogues], cuda/lt_product.h.
struct FeedForwardParameters {
  at::Tensor wide, bias, narrow;  // [I, H], [I], [H, I]
};
BesideResidual feed_forward_beside_residual(const at::Tensor& x, const FeedForwardParameters& parameters, Gelu form);

}  // namespace bert::ops
