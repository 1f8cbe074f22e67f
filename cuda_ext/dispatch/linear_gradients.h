// Weights and gradients of linear layers, as several operators compute them on CUDA.
#pragma once

#include <optional>
#include <vector>

#include "cuda_ext/beside_residual.h"
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

/// Derivative's result, and its first input, x, once more. Derivative::gradients gets the residual's gradient, too.
template <class Derivative>
struct BesideInput : Function<BesideInput<Derivative>> {
  template <class... Parameters>
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Parameters&... parameters) {
    return {Derivative::forward(ctx, x, parameters...), x};
  }
  /// Without a gradient of the result, x has that of the residual.
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    if (!grads[0].defined()) {
      variable_list gradients(kMostInputs);
      gradients[0] = grads[1];
      return gradients;
    }
    return first_derivatives(
        [&] { return Derivative::gradients(ctx, grads[0].contiguous(), ctx->get_saved_variables(), grads[1]); });
  }
};

/// Derivative's result and its input, for operators without a schema. Where autocast is on, x is in the low precision.
template <class Derivative, class... Parameters>
ops::BesideResidual beside_residual(const Tensor& x, const Parameters&... parameters) {
  std::optional<Autocast> cast;
  if (at::autocast::is_autocast_enabled(x.device().type())) cast.emplace(x.device().type());
  const variable_list list = BesideInput<Derivative>::apply(cast ? cast->low(x) : x, parameters...);
  return {list[0], list[1]};
}

/// True if x is in a low precision, or autocast gives it one.
bool computes_in_low_precision(const Tensor& x);

}  // namespace bert::dispatch
