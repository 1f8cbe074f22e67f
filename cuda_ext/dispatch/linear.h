// Linear layers: one product, three in one, and one padded with columns of zeros.
#pragma once

#include <array>

#include "cuda_ext/dispatch/operator.h"

namespace bert {

namespace composite {

Tensor linear(const Tensor& x, const Tensor& weight, const OptionalTensor& bias);

std::tuple<Tensor, Tensor, Tensor> linear_backward(const Tensor& grad, const Tensor& x, const Tensor& weight,
                                                   std::array<bool, 3> needed);

/// The sums over tokens, in grad's dtype.
Tensor bias_gradient(const Tensor& grad);

/// The gradients of a linear layer's parameters in the dtype of sums, fp32: [N, K] and [N] for grad [T, N], x [T, K].
std::tuple<Tensor, Tensor> linear_sums(const Tensor& grad, const Tensor& x);

/// One [T, 3H] product of the three joined weights, which are converted to x's dtype.
Tensor qkv_linear(const Tensor& x, const Tensor& query_weight, const Tensor& key_weight, const Tensor& value_weight,
                  const Tensor& query_bias, const Tensor& key_bias, const Tensor& value_bias);

Tensor padded_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t columns);

/// The tensor in a dtype, with rows of 0 added up to `rows`. Returns the tensor itself if nothing changes.
Tensor padded_rows(const Tensor& tensor, int64_t rows, at::ScalarType dtype);

/// The three tensors laid end to end: a view if they are neighbours in one storage, else a copy.
Tensor join(const Tensor& first, const Tensor& second, const Tensor& third);

}  // namespace composite

namespace checks {

dispatch::CheckOf<composite::linear> linear;
dispatch::CheckOf<composite::linear_backward> linear_backward;
dispatch::CheckOf<composite::linear_sums> linear_sums;
dispatch::CheckOf<composite::qkv_linear> qkv_linear;
dispatch::CheckOf<composite::padded_linear> padded_linear;

}  // namespace checks

namespace dispatch {

inline constexpr Operator<composite::linear, checks::linear> linear{"bert::linear"};
inline constexpr Operator<composite::linear_backward, checks::linear_backward> linear_backward{"bert::linear_backward"};
inline constexpr Operator<composite::linear_sums, checks::linear_sums> linear_sums{"bert::linear_sums"};
inline constexpr Operator<composite::qkv_linear, checks::qkv_linear> qkv_linear{"bert::qkv_linear"};
inline constexpr Operator<composite::padded_linear, checks::padded_linear> padded_linear{"bert::padded_linear"};

}  // namespace dispatch
}  // namespace bert
