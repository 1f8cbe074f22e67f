#include "cuda_ext/dispatch/bias_gelu.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include "cuda_ext/cuda/tensors.h"
#include "cuda_ext/kernels/bias_gelu.h"
#include "cuda_ext/kernels/launch.h"

namespace bert::cuda {
namespace {

Tensor bias_gelu(const Tensor& x, const Tensor& bias, bool tanh) {
  const c10::cuda::CUDAGuard guard(x.device());
  Tensor y = at::empty_like(x);
  const bool done = with_types(x, bias, [&](auto activations, auto parameters) {
    using T = typename decltype(activations)::type;
    using P = typename decltype(parameters)::type;
    kernels::bias_gelu_forward<T, P>(
        {.rows = x.size(0), .columns = x.size(1), .tanh = tanh, .x = in<T>(x), .bias = in<P>(bias), .y = out<T>(y)},
        stream_of(x));
  });
  return done ? y : composite::bias_gelu(x, bias, tanh);
}

std::tuple<Tensor, Tensor> bias_gelu_backward(const Tensor& grad, const Tensor& x, const Tensor& bias, bool tanh) {
  const c10::cuda::CUDAGuard guard(x.device());
  Tensor dx = at::empty_like(x), dbias = at::empty_like(bias);
  const Tensor workspace = floats(x, {kernels::bias_gelu_backward_workspace(x.size(0), x.size(1))});
  const bool done = same_type(x, {&grad}) && with_types(x, bias, [&](auto activations, auto parameters) {
                      using T = typename decltype(activations)::type;
                      using P = typename decltype(parameters)::type;
                      kernels::bias_gelu_backward<T, P>({.rows = x.size(0),
                                                         .columns = x.size(1),
                                                         .tanh = tanh,
                                                         .dy = in<T>(grad),
                                                         .x = in<T>(x),
                                                         .bias = in<P>(bias),
                                                         .dx = out<T>(dx),
                                                         .dbias = out<P>(dbias),
                                                         .workspace = out<float>(workspace)},
                                                        stream_of(x));
                    });
  if (!done) return composite::bias_gelu_backward(grad, x, bias, tanh);
  return {dx, dbias};
}

}  // namespace
}  // namespace bert::cuda

TORCH_LIBRARY_IMPL(bert, CUDA, m) {
  m.impl("bias_gelu", bert::cuda::bias_gelu);
  m.impl("bias_gelu_backward", bert::cuda::bias_gelu_backward);
}
