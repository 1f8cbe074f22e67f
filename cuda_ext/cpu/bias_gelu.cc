#include "cuda_ext/dispatch/bias_gelu.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include "cuda_ext/cpu/tensors.h"

namespace bert::cpu {
namespace {

Tensor bias_gelu(const Tensor& x, const Tensor& bias, bool tanh) {
  if (!has_kernel(x)) return composite::bias_gelu(x, bias, tanh);
  const Tensor b = as_float(bias);
  Tensor y = at::empty_like(x);
  const simd::BiasGelu arguments{.type = type_of(x),
                                 .tanh = tanh,
                                 .stream = streams(y),
                                 .columns = x.size(1),
                                 .x = x.const_data_ptr(),
                                 .grad = nullptr,
                                 .bias = b.const_data_ptr<float>(),
                                 .out = y.mutable_data_ptr(),
                                 .dbias = nullptr};
  at::parallel_for(0, x.size(0), grain(x.size(1) * 4),
                   [&](int64_t begin, int64_t end) { simd::kernels().bias_gelu(arguments, begin, end); });
  return y;
}

std::tuple<Tensor, Tensor> bias_gelu_backward(const Tensor& grad, const Tensor& x, const Tensor& bias, bool tanh) {
  if (!has_kernel(x) || grad.scalar_type() != x.scalar_type())
    return composite::bias_gelu_backward(grad, x, bias, tanh);
  const Tensor b = as_float(bias);
  Tensor dx = at::empty_like(x);
  const bool stream = streams(dx);
  Partials partials(x.size(0), x.size(1), x);
  for_pieces(x.size(0), x.size(1) * 4, [&](int64_t piece, int64_t begin, int64_t end) {
    const simd::BiasGelu arguments{.type = type_of(x),
                                   .tanh = tanh,
                                   .stream = stream,
                                   .columns = x.size(1),
                                   .x = x.const_data_ptr(),
                                   .grad = grad.const_data_ptr(),
                                   .bias = b.const_data_ptr<float>(),
                                   .out = dx.mutable_data_ptr(),
                                   .dbias = partials.piece(piece)};
    simd::kernels().bias_gelu_backward(arguments, begin, end);
  });
  return {dx, partials.total().to(bias.scalar_type())};
}

}  // namespace
}  // namespace bert::cpu

TORCH_LIBRARY_IMPL(bert, CPU, m) {
  m.impl("bias_gelu", bert::cpu::bias_gelu);
  m.impl("bias_gelu_backward", bert::cpu::bias_gelu_backward);
}
