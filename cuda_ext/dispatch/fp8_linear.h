// Linear layers in FP8: Note [Products in FP8].
#pragma once

#include <ATen/core/TensorBody.h>

#include <array>

#include "cuda_ext/dispatch/operator.h"

namespace bert {

namespace composite {

using at::TensorList;

/// A number of rows, up to a multiple of 16: the length of sums in FP8.
inline constexpr int64_t kFp8Multiple = 16;
inline int64_t fp8_rows(int64_t rows) { return (rows + kFp8Multiple - 1) / kFp8Multiple * kFp8Multiple; }

/// One tensor, or three laid end to end.
Tensor joined(TensorList tensors);

/// The result, and for backward the bytes of x^T [K, fp8_rows(T)], with zeros behind its columns, and of w^T [K, N].
std::tuple<Tensor, Tensor, Tensor> fp8_linear(const Tensor& x, TensorList weights, TensorList biases,
                                              const Tensor& scales, const Tensor& amaxes);

/// The gradients of x, of the joined weight, fp32, and of the joined bias, fp32.
std::tuple<Tensor, Tensor, Tensor> fp8_linear_backward(const Tensor& grad, const Tensor& x, const Tensor& weight,
                                                       const Tensor& scales, const Tensor& amaxes,
                                                       std::array<bool, 3> needed);

}  // namespace composite

namespace checks {

dispatch::CheckOf<composite::fp8_linear> fp8_linear;
dispatch::CheckOf<composite::fp8_linear_backward> fp8_linear_backward;

}  // namespace checks

namespace dispatch {

inline constexpr Operator<composite::fp8_linear, checks::fp8_linear> fp8_linear{"bert::fp8_linear"};
inline constexpr Operator<composite::fp8_linear_backward, checks::fp8_linear_backward> fp8_linear_backward{
    "bert::fp8_linear_backward"};

}  // namespace dispatch
}  // namespace bert
