// LayerNorm(x), and LayerNorm(dropout(x + bias) + residual).
#pragma once

#include "cuda_ext/dispatch/operator.h"

namespace bert {

namespace composite {

std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps);

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const Tensor& grad, const Tensor& x, const Tensor& mean,
                                                       const Tensor& rstd, const Tensor& gamma);

std::tuple<Tensor, Tensor, Tensor, Tensor> bias_dropout_residual_layer_norm(const Tensor& x, const Tensor& bias,
                                                                            const Tensor& residual, const Tensor& gamma,
                                                                            const Tensor& beta, double eps, double p,
                                                                            int64_t seed, int64_t site,
                                                                            const OptionalTensor& keys);

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> bias_dropout_residual_layer_norm_backward(
    const Tensor& grad, const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& mean,
    const Tensor& rstd, const Tensor& gamma, double p, int64_t seed, int64_t site, const OptionalTensor& keys,
    const Tensor& kept);

}  // namespace composite

namespace checks {

dispatch::CheckOf<composite::layer_norm> layer_norm;
dispatch::CheckOf<composite::layer_norm_backward> layer_norm_backward;
dispatch::CheckOf<composite::bias_dropout_residual_layer_norm> bias_dropout_residual_layer_norm;
dispatch::CheckOf<composite::bias_dropout_residual_layer_norm_backward> bias_dropout_residual_layer_norm_backward;

}  // namespace checks

namespace dispatch {

inline constexpr Operator<composite::layer_norm, checks::layer_norm> layer_norm{"bert::layer_norm"};
inline constexpr Operator<composite::layer_norm_backward, checks::layer_norm_backward> layer_norm_backward{
    "bert::layer_norm_backward"};
inline constexpr Operator<composite::bias_dropout_residual_layer_norm, checks::bias_dropout_residual_layer_norm>
    bias_dropout_residual_layer_norm{"bert::bias_dropout_residual_layer_norm"};
inline constexpr Operator<composite::bias_dropout_residual_layer_norm_backward,
                          checks::bias_dropout_residual_layer_norm_backward>
    bias_dropout_residual_layer_norm_backward{"bert::bias_dropout_residual_layer_norm_backward"};

}  // namespace dispatch
}  // namespace bert
