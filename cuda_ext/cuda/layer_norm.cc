#include "cuda_ext/dispatch/layer_norm.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include "cuda_ext/cuda/tensors.h"
#include "cuda_ext/kernels/launch.h"
#include "cuda_ext/kernels/layer_norm.h"

namespace bert::cuda {
namespace {

/// The input of both layer norms. Bias and residual are undefined in the plain one.
struct Normalised {
  Tensor x, bias, residual;
  kernels::DropoutMask dropout;

  template <class T, class P>
  [[nodiscard]] kernels::LayerNormInput<T, P> input() const {
    return {.rows = x.size(0),
            .columns = x.size(1),
            .x = in<T>(x),
            .bias = bias.defined() ? in<P>(bias) : nullptr,
            .residual = residual.defined() ? in<T>(residual) : nullptr,
            .dropout = dropout};
  }
  /// True if the parameters have one dtype, and the residual has that of x.
  [[nodiscard]] bool has_kernel(const Tensor& gamma) const {
    return (!bias.defined() || same_type(gamma, {&bias})) && (!residual.defined() || same_type(x, {&residual}));
  }
};

bool forward(const Normalised& z, const Tensor& gamma, const Tensor& beta, double eps, const Tensor& y,
             const Tensor& mean, const Tensor& rstd) {
  return z.has_kernel(gamma) && same_type(gamma, {&beta}) &&
         with_types(z.x, gamma, [&](auto activations, auto parameters) {
           using T = typename decltype(activations)::type;
           using P = typename decltype(parameters)::type;
           kernels::layer_norm_forward<T, P>({.input = z.input<T, P>(),
                                              .gamma = in<P>(gamma),
                                              .beta = in<P>(beta),
                                              .eps = static_cast<float>(eps),
                                              .y = out<T>(y),
                                              .mean = out<float>(mean),
                                              .rstd = out<float>(rstd)},
                                             stream_of(z.x));
         });
}

struct Gradients {
  Tensor dx, dresidual, dgamma, dbeta, dbias;
};

bool backward(const Normalised& z, const Tensor& grad, const Tensor& gamma, const Tensor& mean, const Tensor& rstd,
              const Gradients& gradients) {
  const Tensor workspace =
      floats(z.x, {kernels::layer_norm_backward_workspace(z.x.size(0), z.x.size(1), !gradients.dbias.defined())});
  return z.has_kernel(gamma) && same_type(z.x, {&grad}) &&
         with_types(z.x, gamma, [&](auto activations, auto parameters) {
           using T = typename decltype(activations)::type;
           using P = typename decltype(parameters)::type;
           const auto& [dx, dresidual, dgamma, dbeta, dbias] = gradients;
           kernels::layer_norm_backward<T, P>({.input = z.input<T, P>(),
                                               .dy = in<T>(grad),
                                               .gamma = in<P>(gamma),
                                               .mean = in<float>(mean),
                                               .rstd = in<float>(rstd),
                                               .dx = out<T>(dx),
                                               .dresidual = dresidual.defined() ? out<T>(dresidual) : nullptr,
                                               .dgamma = out<P>(dgamma),
                                               .dbeta = out<P>(dbeta),
                                               .dbias = dbias.defined() ? out<P>(dbias) : nullptr,
                                               .workspace = out<float>(workspace)},
                                              stream_of(z.x));
         });
}

std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  const c10::cuda::CUDAGuard guard(x.device());
  const Normalised z{.x = x, .bias = {}, .residual = {}, .dropout = {}};
  Tensor y = at::empty_like(x), mean = floats(x, {x.size(0)}), rstd = floats(x, {x.size(0)});
  if (!forward(z, gamma, beta, eps, y, mean, rstd)) return composite::layer_norm(x, gamma, beta, eps);
  return {y, mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const Tensor& grad, const Tensor& x, const Tensor& mean,
                                                       const Tensor& rstd, const Tensor& gamma) {
  const c10::cuda::CUDAGuard guard(x.device());
  const Normalised z{.x = x, .bias = {}, .residual = {}, .dropout = {}};
  const Gradients gradients{.dx = at::empty_like(x),
                            .dresidual = {},
                            .dgamma = at::empty_like(gamma),
                            .dbeta = at::empty_like(gamma),
                            .dbias = {}};
  if (!backward(z, grad, gamma, mean, rstd, gradients)) {
    return composite::layer_norm_backward(grad, x, mean, rstd, gamma);
  }
  return {gradients.dx, gradients.dgamma, gradients.dbeta};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> bias_dropout_residual_layer_norm(const Tensor& x, const Tensor& bias,
                                                                            const Tensor& residual, const Tensor& gamma,
                                                                            const Tensor& beta, double eps, double p,
                                                                            int64_t seed, int64_t site,
                                                                            const OptionalTensor& keys) {
  const c10::cuda::CUDAGuard guard(x.device());
  const Normalised z{.x = x, .bias = bias, .residual = residual, .dropout = dropout_mask(p, seed, site, keys)};
  Tensor y = at::empty_like(x), mean = floats(x, {x.size(0)}), rstd = floats(x, {x.size(0)});
  if (!forward(z, gamma, beta, eps, y, mean, rstd)) {
    return composite::bias_dropout_residual_layer_norm(x, bias, residual, gamma, beta, eps, p, seed, site, keys);
  }
  return {y, mean, rstd, composite::nothing_kept(x)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> bias_dropout_residual_layer_norm_backward(
    const Tensor& grad, const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& mean,
    const Tensor& rstd, const Tensor& gamma, double p, int64_t seed, int64_t site, const OptionalTensor& keys,
    const Tensor& kept) {
  const c10::cuda::CUDAGuard guard(x.device());
  const Normalised z{.x = x, .bias = bias, .residual = residual, .dropout = dropout_mask(p, seed, site, keys)};
  const Gradients gradients{.dx = at::empty_like(x),
                            .dresidual = at::empty_like(residual),
                            .dgamma = at::empty_like(gamma),
                            .dbeta = at::empty_like(gamma),
                            .dbias = at::empty_like(bias)};
  if (!backward(z, grad, gamma, mean, rstd, gradients)) {
    return composite::bias_dropout_residual_layer_norm_backward(grad, x, bias, residual, mean, rstd, gamma, p, seed,
                                                                site, keys, kept);
  }
  return {gradients.dx, gradients.dbias, gradients.dresidual, gradients.dgamma, gradients.dbeta};
}

}  // namespace
}  // namespace bert::cuda

TORCH_LIBRARY_IMPL(bert, CUDA, m) {
  m.impl("layer_norm", bert::cuda::layer_norm);
  m.impl("layer_norm_backward", bert::cuda::layer_norm_backward);
  m.impl("bias_dropout_residual_layer_norm", bert::cuda::bias_dropout_residual_layer_norm);
  m.impl("bias_dropout_residual_layer_norm_backward", bert::cuda::bias_dropout_residual_layer_norm_backward);
}
