#include "cuda_ext/dispatch/linear.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include "cuda_ext/cuda/lt_product.h"
#include "cuda_ext/dispatch/bias_gelu.h"
#include "cuda_ext/dispatch/feed_forward.h"

namespace bert::cuda {
namespace {

using at::Tensor;
using Epilogue = LtProduct::Epilogue;

bool is_low(const Tensor& x) { return x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16; }

std::tuple<Tensor, Tensor> linear_sums(const Tensor& grad, const Tensor& x) {
  if (!is_low(x)) return composite::linear_sums(grad, x);
  const c10::cuda::CUDAGuard guard(x.device());
  const auto sums = [&](at::IntArrayRef shape) { return at::empty(shape, x.options().dtype(at::kFloat)); };
  const LtKind kind{Epilogue::kBiasGradient, grad.size(1), x.size(1), x.scalar_type()};
  const Tensors result =
      checked_product(kind, {grad, x},
                      {.product =
                           [&](const Tensors& in, Tensors& results) {
                             results = {sums({grad.size(1), x.size(1)}), sums({grad.size(1)})};
                             return run({.epilogue = kind.epilogue,
                                         .a = in[0].t(),
                                         .b = in[1],
                                         .d = results[0],
                                         .bias = results[1],
                                         .auxiliary = {}});
                           },
                       .plain = [&](const Tensors& in) -> Tensors {
                         return {at::mm(in[0].t(), in[1], at::kFloat), at::sum(in[0], {0}, false, at::kFloat)};
                       }});
  return {result[0], result[1]};
}

/// A bias for kernels that add one.
Tensor no_bias(const Tensor& z) { return at::zeros({z.size(1)}, z.options()); }

std::tuple<Tensor, Tensor> linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (!is_low(x)) return composite::linear_gelu(x, weight, bias);
  const c10::cuda::CUDAGuard guard(x.device());
  const LtKind kind{Epilogue::kBiasGelu, weight.size(0), weight.size(1), x.scalar_type()};
  const Tensors result =
      checked_product(kind, {x},
                      {.product =
                           [&](const Tensors& in, Tensors& results) {
                             const Tensor y = at::empty({in[0].size(0), weight.size(0)}, x.options());
                             results = {y, at::empty_like(y)};
                             return run({.epilogue = kind.epilogue,
                                         .a = in[0],
                                         .b = weight.t(),
                                         .d = y,
                                         .bias = bias,
                                         .auxiliary = results[1]});
                           },
                       .plain = [&](const Tensors& in) -> Tensors {
                         const Tensor z = at::linear(in[0], weight, bias);
                         return {dispatch::bias_gelu(z, no_bias(z), /*tanh=*/true), z};
                       }});
  return {result[0], result[1]};
}

std::tuple<Tensor, Tensor> linear_gelu_backward(const Tensor& grad, const Tensor& weight, const Tensor& z) {
  if (!is_low(z)) return composite::linear_gelu_backward(grad, weight, z);
  const c10::cuda::CUDAGuard guard(z.device());
  const LtKind kind{Epilogue::kGeluGradient, weight.size(0), weight.size(1), z.scalar_type()};
  const Tensors result = checked_product(
      kind, {grad, z},
      {.product =
           [&](const Tensors& in, Tensors& results) {
             const Tensor dz = at::empty_like(in[1]);
             results = {dz, at::empty({z.size(1)}, z.options())};
             return run(
                 {.epilogue = kind.epilogue, .a = in[0], .b = weight, .d = dz, .bias = results[1], .auxiliary = in[1]});
           },
       .plain = [&](const Tensors& in) -> Tensors {
         auto [dz, dbias] = dispatch::bias_gelu_backward(at::mm(in[0], weight), in[1], no_bias(z), /*tanh=*/true);
         return {dz, dbias};
       }});
  return {result[0], result[1]};
}

}  // namespace
}  // namespace bert::cuda

TORCH_LIBRARY_IMPL(bert, CUDA, m) {
  m.impl("linear_sums", bert::cuda::linear_sums);
  m.impl("linear_gelu", bert::cuda::linear_gelu);
  m.impl("linear_gelu_backward", bert::cuda::linear_gelu_backward);
}
