#include "cuda_ext/dispatch/fp8_linear.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include "cuda_ext/cuda/tensors.h"
#include "cuda_ext/kernels/fp8.h"
#include "cuda_ext/kernels/launch.h"

namespace bert::cuda {
namespace {

using composite::fp8_rows;
using composite::kFp8Multiple;

/// True if cuBLASLt has products in FP8 for results of x's dtype and these sizes.
bool has_products(const Tensor& x, int64_t rows, int64_t columns, int64_t depth) {
  const bool low = x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf;
  return low && rows > 0 && columns % kFp8Multiple == 0 && depth % kFp8Multiple == 0;
}

/// A matrix [T, K] in FP8 in two ways, and 1 / its scale.
struct Rounded {
  Tensor rows;     // [T, K]
  Tensor columns;  // [K, fp8_rows(T)], with zeros behind its columns
  Tensor inverse;
};

/// `operand` is its place in scales and amaxes: 0 for the input, 1 for the weight, 2 for the gradient.
Rounded in_fp8(const Tensor& x, int64_t operand, const Tensor& scales, const Tensor& amaxes) {
  const auto bytes = [&](int64_t rows, int64_t columns) {
    return at::empty({rows, columns}, x.options().dtype(at::kByte));
  };
  const Rounded result{.rows = bytes(x.size(0), x.size(1)),
                       .columns = bytes(x.size(1), fp8_rows(x.size(0))),
                       .inverse = scales.select(0, 1).select(0, operand)};
  const bool done = with_type(x, [&](auto type) {
    using T = typename decltype(type)::type;
    kernels::fp8_cast_transpose<T>({.rows = x.size(0),
                                    .columns = x.size(1),
                                    .padded_rows = fp8_rows(x.size(0)),
                                    .format = operand == 2 ? Fp8::kE5M2 : Fp8::kE4M3,
                                    .x = in<T>(x),
                                    .scale = in<float>(scales) + operand,
                                    .amax = out<float>(amaxes) + operand,
                                    .y = out<uint8_t>(result.rows),
                                    .transposed = out<uint8_t>(result.columns)},
                                   stream_of(x));
  });
  return done ? result : in_fp8(x.to(at::kFloat), operand, scales, amaxes);
}

/// a b^T / (scale of a * scale of b). a [M, K] of `type`, b [N, K] E4M3.
Tensor product(const Tensor& a, at::ScalarType type, const Tensor& inverse_a, const Tensor& b, const Tensor& inverse_b,
               const OptionalTensor& bias, at::ScalarType result, bool fast_sums) {
  return at::_scaled_mm(a.view(type), b.view(at::kFloat8_e4m3fn).t(), inverse_a, inverse_b, bias, std::nullopt, result,
                        fast_sums);
}

std::tuple<Tensor, Tensor, Tensor> fp8_linear(const Tensor& x, at::TensorList weights, at::TensorList biases,
                                              const Tensor& scales, const Tensor& amaxes) {
  const c10::cuda::CUDAGuard guard(x.device());
  const Tensor joined = composite::joined(weights);
  if (!has_products(x, x.size(0), joined.size(0), x.size(1)))
    return composite::fp8_linear(x, weights, biases, scales, amaxes);
  const Rounded input = in_fp8(x, 0, scales, amaxes), weight = in_fp8(joined, 1, scales, amaxes);
  const OptionalTensor bias =
      biases.empty() ? std::nullopt : OptionalTensor(composite::joined(biases).to(x.scalar_type()));
  const Tensor y = product(input.rows, at::kFloat8_e4m3fn, input.inverse, weight.rows, weight.inverse, bias,
                           x.scalar_type(), /*fast_sums=*/true);
  return {y, input.columns, weight.columns};
}

std::tuple<Tensor, Tensor, Tensor> fp8_linear_backward(const Tensor& grad, const Tensor& x, const Tensor& weight,
                                                       const Tensor& scales, const Tensor& amaxes,
                                                       std::array<bool, 3> needed) {
  const c10::cuda::CUDAGuard guard(grad.device());
  if (!has_products(grad, grad.size(0), grad.size(1), weight.size(0)))
    return composite::fp8_linear_backward(grad, x, weight, scales, amaxes, needed);
  const Rounded rounded = in_fp8(grad, 2, scales, amaxes);
  const auto inverse = [&](int64_t operand) { return scales.select(0, 1).select(0, operand); };
  Tensor dx, dweight, dbias;
  if (needed[0]) {
    dx = product(rounded.rows, at::kFloat8_e5m2, rounded.inverse, weight, inverse(1), std::nullopt, grad.scalar_type(),
                 /*fast_sums=*/false);
  }
  if (needed[1]) {
    dweight = product(rounded.columns, at::kFloat8_e5m2, rounded.inverse, x, inverse(0), std::nullopt, at::kFloat,
                      /*fast_sums=*/false);
  }
  if (needed[2]) dbias = at::sum(grad, {0}, /*keepdim=*/false, at::kFloat);
  return {dx, dweight, dbias};
}

}  // namespace
}  // namespace bert::cuda

TORCH_LIBRARY_IMPL(bert, CUDA, m) {
  m.impl("fp8_linear", bert::cuda::fp8_linear);
  m.impl("fp8_linear_backward", bert::cuda::fp8_linear_backward);
}
