// A linear layer and GELU in one product, and the gradients of both in another.
#pragma once

#include "cuda_ext/dispatch/operator.h"

namespace bert {

namespace composite {

/// y = gelu(z) in the tanh form, and z = x weight^T + bias. x [T, K], weight [N, K], bias [N] or none, of one dtype.
std::tuple<Tensor, Tensor> linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias);

/// dz = gelu'(z) (grad weight), and its sums over tokens. grad [T, H] is the gradient of y weight^T, weight [H, N].
std::tuple<Tensor, Tensor> linear_gelu_backward(const Tensor& grad, const Tensor& weight, const Tensor& z);

}  // namespace composite

namespace checks {

dispatch::CheckOf<composite::linear_gelu> linear_gelu;
dispatch::CheckOf<composite::linear_gelu_backward> linear_gelu_backward;

}  // namespace checks

namespace dispatch {

inline constexpr Operator<composite::linear_gelu, checks::linear_gelu> linear_gelu{"bert::linear_gelu"};
inline constexpr Operator<composite::linear_gelu_backward, checks::linear_gelu_backward> linear_gelu_backward{
    "bert::linear_gelu_backward"};

}  // namespace dispatch
}  // namespace bert
