// Weights and gradients of linear layers, as several operators compute them on CUDA.
#pragma once

#include <vector>

#include "cuda_ext/dispatch/derivative.h"

namespace bert::dispatch {

/// The tensors in a dtype: themselves, or on CUDA in one launch.
std::vector<Tensor> converted(std::vector<Tensor> tensors, at::ScalarType type);

/// grad^T x in the weight's dtype, or undefined if the product added it to the weight's gradient_sum(). For a weight in
/// fp32 on CUDA, sums of a lower precision are not rounded to it. grad [T, N], x [T, K].
Tensor weight_gradient(const Tensor& grad, const Tensor& x, const Tensor& weight);

// Note [Gradients beside a residual]
// The input of a block also is its residual, so autograd would add two gradients of it in a pass of its own. Operators
// named ..._beside_residual return their input once more, for the residual. Their derivative gets the residual's
// gradient, and the product that gives the gradient of the input adds to it, in its memory if nothing else holds it.

/// grad weight + residual, which is the gradient of the second output, or undefined. Undefined if x needs no gradient.
Tensor input_gradient(AutogradContext* ctx, const Tensor& grad, const Tensor& weight, const Tensor& residual);

/// The gradients of an operator's inputs, x first: compute(grad, saved) with the gradient of the first output. Without
/// one x has that of the second output.
template <class Compute>
variable_list beside_residual(AutogradContext* ctx, const variable_list& grads, const Compute& compute) {
  if (!grads[0].defined()) {
    variable_list gradients(kMostInputs);
    gradients[0] = grads[1];
    return gradients;
  }
  return first_derivatives([&] { return compute(grads[0].contiguous(), ctx->get_saved_variables()); });
}

/// True if x is in a low precision, or autocast gives it one.
bool computes_in_low_precision(const Tensor& x);

/// compute(x in the low precision) below autocast, where that is on; else compute(x). For operators without a schema.
template <class Compute>
variable_list below_autocast(const Tensor& x, const Compute& compute) {
  if (!at::autocast::is_autocast_enabled(x.device().type())) return compute(x);
  const Autocast cast(x.device().type());
  return compute(cast.low(x));
}

}  // namespace bert::dispatch
