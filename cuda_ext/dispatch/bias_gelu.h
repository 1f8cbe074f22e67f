// gelu(x + bias).
#pragma once

#include "cuda_ext/dispatch/operator.h"

namespace bert {

namespace composite {

Tensor bias_gelu(const Tensor& x, const Tensor& bias, bool tanh);

std::tuple<Tensor, Tensor> bias_gelu_backward(const Tensor& grad, const Tensor& x, const Tensor& bias, bool tanh);

}  // namespace composite

namespace checks {

dispatch::CheckOf<composite::bias_gelu> bias_gelu;
dispatch::CheckOf<composite::bias_gelu_backward> bias_gelu_backward;

}  // namespace checks

namespace dispatch {

inline constexpr Operator<composite::bias_gelu, checks::bias_gelu> bias_gelu{"bert::bias_gelu"};
inline constexpr Operator<composite::bias_gelu_backward, checks::bias_gelu_backward> bias_gelu_backward{
    "bert::bias_gelu_backward"};

}  // namespace dispatch
}  // namespace bert
