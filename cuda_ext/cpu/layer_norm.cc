#include "cuda_ext/cpu/layer_norm.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include "cuda_ext/dispatch/layer_norm.h"

namespace bert::cpu {

Statistics empty_statistics(int64_t rows, const Tensor& like) {
  const auto options = like.options().dtype(at::kFloat);
  return {at::empty({rows}, options), at::empty({rows}, options)};
}

void normalise(simd::LayerNorm arguments, int64_t rows, const Tensor& beta, double eps, Tensor& y,
               Statistics& statistics) {
  arguments.beta = beta.const_data_ptr<float>();
  arguments.eps = static_cast<float>(eps);
  arguments.y = y.mutable_data_ptr();
  arguments.stream = streams(y);
  arguments.mean = statistics.mean.mutable_data_ptr<float>();
  arguments.rstd = statistics.rstd.mutable_data_ptr<float>();
  at::parallel_for(0, rows, grain(arguments.columns * 8), [&](int64_t begin, int64_t end) {
    simd::LayerNorm mine = arguments;
    mine.scratch = scratch(simd::norm_scratch(arguments.columns));
    simd::kernels().layer_norm(mine, begin, end);
  });
}

Tensor normalise_backward(simd::LayerNorm arguments, int64_t rows, int64_t sums, const Tensor& grad, const Tensor& mean,
                          const Tensor& rstd) {
  arguments.grad = grad.const_data_ptr();
  arguments.mean = const_cast<float*>(mean.const_data_ptr<float>());  // read only in backward
  arguments.rstd = const_cast<float*>(rstd.const_data_ptr<float>());
  Partials partials(rows, sums * arguments.columns, grad);
  for_pieces(rows, arguments.columns * 16, [&](int64_t piece, int64_t begin, int64_t end) {
    simd::LayerNorm mine = arguments;
    mine.partial = partials.piece(piece);
    mine.scratch = scratch(simd::norm_scratch(arguments.columns));
    simd::kernels().layer_norm_backward(mine, begin, end);
  });
  return partials.total();
}

namespace {

/// Arguments of LayerNorm(x) for forward and backward. Parameters are fp32.
simd::LayerNorm plain_arguments(const Tensor& x, const Tensor& gamma) {
  simd::LayerNorm arguments{};
  arguments.input = simd::NormInput::kPlain;
  arguments.type = type_of(x);
  arguments.columns = x.size(1);
  arguments.x = x.const_data_ptr();
  arguments.gamma = gamma.const_data_ptr<float>();
  return arguments;
}

/// Arguments of LayerNorm(dropout(x + bias) + residual), without the mask.
simd::LayerNorm residual_arguments(const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& gamma) {
  simd::LayerNorm arguments = plain_arguments(x, gamma);
  arguments.input = simd::NormInput::kResidual;
  arguments.residual = residual.const_data_ptr();
  arguments.bias = bias.const_data_ptr<float>();
  return arguments;
}

std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  if (!has_kernel(x)) return composite::layer_norm(x, gamma, beta, eps);
  const Tensor g = as_float(gamma), b = as_float(beta);
  Tensor y = at::empty_like(x);
  Statistics statistics = empty_statistics(x.size(0), x);
  simd::LayerNorm arguments = plain_arguments(x, g);
  normalise(arguments, x.size(0), b, eps, y, statistics);
  return {y, statistics.mean, statistics.rstd};
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const Tensor& grad, const Tensor& x, const Tensor& mean,
                                                       const Tensor& rstd, const Tensor& gamma) {
  if (!has_kernel(x) || grad.scalar_type() != x.scalar_type())
    return composite::layer_norm_backward(grad, x, mean, rstd, gamma);
  const Tensor g = as_float(gamma);
  Tensor dx = at::empty_like(x);
  simd::LayerNorm arguments = plain_arguments(x, g);
  arguments.dx = dx.mutable_data_ptr();
  arguments.stream = streams(dx);
  const auto sums = normalise_backward(arguments, x.size(0), 2, grad, mean, rstd).to(gamma.scalar_type()).chunk(2);
  return {dx, sums[0], sums[1]};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> bias_dropout_residual_layer_norm(const Tensor& x, const Tensor& bias,
                                                                            const Tensor& residual, const Tensor& gamma,
                                                                            const Tensor& beta, double eps, double p,
                                                                            int64_t seed, int64_t site,
                                                                            const OptionalTensor& keys) {
  if (!has_kernel(x) || residual.scalar_type() != x.scalar_type()) {
    return composite::bias_dropout_residual_layer_norm(x, bias, residual, gamma, beta, eps, p, seed, site, keys);
  }
  const Tensor c = as_float(bias), g = as_float(gamma), b = as_float(beta);
  Tensor y = at::empty_like(x);
  Statistics statistics = empty_statistics(x.size(0), x);
  simd::LayerNorm arguments = residual_arguments(x, c, residual, g);
  const Tensor kept = room_for_mask(p, x.size(0), arguments.columns, x);
  arguments.mask = keeping_mask(mask_of(p, seed, site, keys), kept);
  normalise(arguments, x.size(0), b, eps, y, statistics);
  return {y, statistics.mean, statistics.rstd, kept};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> bias_dropout_residual_layer_norm_backward(
    const Tensor& grad, const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& mean,
    const Tensor& rstd, const Tensor& gamma, double p, int64_t seed, int64_t site, const OptionalTensor& keys,
    const Tensor& kept) {
  if (!has_kernel(x) || residual.scalar_type() != x.scalar_type() || grad.scalar_type() != x.scalar_type()) {
    return composite::bias_dropout_residual_layer_norm_backward(grad, x, bias, residual, mean, rstd, gamma, p, seed,
                                                                site, keys, kept);
  }
  const Tensor c = as_float(bias), g = as_float(gamma);
  Tensor dx = at::empty_like(x), dresidual = at::empty_like(x);
  simd::LayerNorm arguments = residual_arguments(x, c, residual, g);
  arguments.mask = kept_mask(mask_of(p, seed, site, keys), kept);
  arguments.dx = dx.mutable_data_ptr();
  arguments.stream = streams(dx);
  arguments.dresidual = dresidual.mutable_data_ptr();
  const auto sums = normalise_backward(arguments, x.size(0), 3, grad, mean, rstd).chunk(3);
  return {dx, sums[2].to(bias.scalar_type()), dresidual, sums[0].to(gamma.scalar_type()),
          sums[1].to(gamma.scalar_type())};
}

}  // namespace
}  // namespace bert::cpu

TORCH_LIBRARY_IMPL(bert, CPU, m) {
  m.impl("layer_norm", bert::cpu::layer_norm);
  m.impl("layer_norm_backward", bert::cpu::layer_norm_backward);
  m.impl("bias_dropout_residual_layer_norm", bert::cpu::bias_dropout_residual_layer_norm);
  m.impl("bias_dropout_residual_layer_norm_backward", bert::cpu::bias_dropout_residual_layer_norm_backward);
}
