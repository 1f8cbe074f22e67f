// Linear layers whose products are made of numbers of 8 bits.
#pragma once

#include <ATen/core/Tensor.h>

namespace bert::ops {

/// The scales of one linear layer in FP8, and what it notes for later ones. The three entries are those of the input, the
/// weight and the gradient of the result.
struct Fp8Scaling {
  at::Tensor scales;  // [2, 3] fp32: the scales, and 1 / scale
  at::Tensor amaxes;  // [3] fp32: forward and backward raise these to the greatest absolute values that they see
};

/// y = x w^T + bias, where w is the weights laid end to end. x [T, K]; `weights` is one [N, K] or three of equal shapes,
/// which are views of one storage (else they are concatenated); `biases` are none, or as many, [N]. Returns [T, N] of
/// x's dtype. Differentiable; under autocast x is low, and weights are rounded from their own dtype to FP8 at once.
///
/// Note [Products in FP8]
/// Both operands of each of the three products have 8 bits: input and weight E4M3, the gradient of the result E5M2. A
/// value is multiplied with the scale of its tensor, clipped to the largest number of the format, and rounded to nearest
/// even; the product is added up in fp32, divided by both scales, and rounded to x's dtype, the gradient of the weight to
/// that of the weight. The bias and its gradient are not in FP8. optim/fp8_scaler.h makes the scales.
/// On CUDA the products are cuBLASLt's (at::_scaled_mm, from compute capability 8.9 on, K and N multiples of 16), with
/// fast sums in forward, as in Transformer Engine. On the CPU, and for other sizes, the rounded values are multiplied in
/// fp32, where products of two are exact: an emulation, slower than bf16.
/// Source: NVIDIA's Transformer Engine, recipe Format.HYBRID.
at::Tensor fp8_linear(const at::Tensor& x, at::TensorList weights, at::TensorList biases, const Fp8Scaling& scaling);

}  // namespace bert::ops
