#include "cuda_ext/dispatch/layer_norm.h"

#include <ATen/ATen.h>

#include "cuda_ext/dispatch/argument_checks.h"
#include "cuda_ext/dispatch/derivative.h"
#include "cuda_ext/dispatch/dropout.h"
#include "cuda_ext/ops.h"

namespace bert::composite {

std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  const auto type = accumulation_type(x);
  auto [y, mean, rstd] = at::native_layer_norm(x.to(type), {x.size(1)}, gamma.to(type), beta.to(type), eps);
  return {y.to(x.scalar_type()), mean.view(-1), rstd.view(-1)};
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const Tensor& grad, const Tensor& x, const Tensor& mean,
                                                       const Tensor& rstd, const Tensor& gamma) {
  const auto type = accumulation_type(x);
  auto [dx, dgamma, dbeta] = at::native_layer_norm_backward(
      grad.to(type), x.to(type), {x.size(1)}, mean.unsqueeze(1), rstd.unsqueeze(1), gamma.to(type),
      at::zeros_like(gamma, gamma.options().dtype(type)), {true, true, true});
  return {dx.to(x.scalar_type()), dgamma.to(gamma.scalar_type()), dbeta.to(gamma.scalar_type())};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> bias_dropout_residual_layer_norm(const Tensor& x, const Tensor& bias,
                                                                            const Tensor& residual, const Tensor& gamma,
                                                                            const Tensor& beta, double eps, double p,
                                                                            int64_t seed, int64_t site,
                                                                            const OptionalTensor& keys) {
  const auto type = accumulation_type(x);
  const Tensor sum = masked(x.to(type) + bias.to(type), p, seed, site, keys) + residual.to(type);
  auto [y, mean, rstd] = layer_norm(sum, gamma, beta, eps);
  return {y.to(x.scalar_type()), mean, rstd, nothing_kept(x)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> bias_dropout_residual_layer_norm_backward(
    const Tensor& grad, const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& mean,
    const Tensor& rstd, const Tensor& gamma, double p, int64_t seed, int64_t site, const OptionalTensor& keys,
    const Tensor& /*kept*/) {
  const auto type = accumulation_type(x);
  const Tensor sum = masked(x.to(type) + bias.to(type), p, seed, site, keys) + residual.to(type);
  auto [dsum, dgamma, dbeta] = layer_norm_backward(grad, sum, mean, rstd, gamma);
  const Tensor dx = masked(dsum, p, seed, site, keys);
  return {dx.to(x.scalar_type()), dx.sum(0).to(bias.scalar_type()), dsum.to(residual.scalar_type()), dgamma, dbeta};
}

}  // namespace bert::composite

namespace bert::checks {

void layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  constexpr auto kOp = "layer_norm";
  check(kOp, "x", x, {-1, -1}, x);
  check(kOp, "gamma", gamma, {x.size(1)}, x);
  check(kOp, "beta", beta, {x.size(1)}, x);
  check_eps(kOp, eps);
}

void layer_norm_backward(const Tensor& grad, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                         const Tensor& gamma) {
  constexpr auto kOp = "layer_norm_backward";
  check(kOp, "x", x, {-1, -1}, x);
  check(kOp, "grad", grad, x.sizes(), x);
  check_statistic(kOp, "mean", mean, {x.size(0)}, x);
  check_statistic(kOp, "rstd", rstd, {x.size(0)}, x);
  check(kOp, "gamma", gamma, {x.size(1)}, x);
}

void bias_dropout_residual_layer_norm(const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& gamma,
                                      const Tensor& beta, double eps, double p, int64_t /*seed*/, int64_t site,
                                      const OptionalTensor& keys) {
  constexpr auto kOp = "bias_dropout_residual_layer_norm";
  check(kOp, "x", x, {-1, -1}, x);
  check(kOp, "bias", bias, {x.size(1)}, x);
  check(kOp, "residual", residual, x.sizes(), x);
  check(kOp, "gamma", gamma, {x.size(1)}, x);
  check(kOp, "beta", beta, {x.size(1)}, x);
  check_eps(kOp, eps);
  check_keys(kOp, p, site, keys, x.size(0), x);
}

void bias_dropout_residual_layer_norm_backward(const Tensor& grad, const Tensor& x, const Tensor& bias,
                                               const Tensor& residual, const Tensor& mean, const Tensor& rstd,
                                               const Tensor& gamma, double p, int64_t /*seed*/, int64_t site,
                                               const OptionalTensor& keys, const Tensor& kept) {
  constexpr auto kOp = "bias_dropout_residual_layer_norm_backward";
  check(kOp, "x", x, {-1, -1}, x);
  check(kOp, "grad", grad, x.sizes(), x);
  check(kOp, "bias", bias, {x.size(1)}, x);
  check(kOp, "residual", residual, x.sizes(), x);
  check_statistic(kOp, "mean", mean, {x.size(0)}, x);
  check_statistic(kOp, "rstd", rstd, {x.size(0)}, x);
  check(kOp, "gamma", gamma, {x.size(1)}, x);
  check_keys(kOp, p, site, keys, x.size(0), x);
  check_kept(kOp, kept, x.size(0), x.size(1), x);
}

}  // namespace bert::checks

namespace bert::dispatch {
namespace {

struct LayerNorm : Differentiable<LayerNorm> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                               double eps) {
    const Forward scope(ctx);
    auto [y, mean, rstd] = dispatch::layer_norm(x, gamma, beta, eps);
    ctx->save_for_backward({x, mean, rstd, gamma, beta});
    ctx->mark_non_differentiable({mean, rstd});
    return {y, mean, rstd};
  }
  static variable_list gradients(AutogradContext* /*ctx*/, const Tensor& grad, const variable_list& saved) {
    auto [dx, dgamma, dbeta] = dispatch::layer_norm_backward(grad, saved[0], saved[1], saved[2], saved[3]);
    add_to_sums({{saved[3], dgamma}, {saved[4], dbeta}});
    return {dx, dgamma, dbeta, Tensor()};
  }
};

struct BiasDropoutResidualLayerNorm : Differentiable<BiasDropoutResidualLayerNorm> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Tensor& bias, const Tensor& residual,
                               const Tensor& gamma, const Tensor& beta, double eps, double p, int64_t seed,
                               int64_t site, const OptionalTensor& keys) {
    const Forward scope(ctx);
    auto [y, mean, rstd, kept] =
        dispatch::bias_dropout_residual_layer_norm(x, bias, residual, gamma, beta, eps, p, seed, site, keys);
    ctx->save_for_backward({x, bias, residual, mean, rstd, gamma, keys.value_or(Tensor()), kept, beta});
    ctx->mark_non_differentiable({mean, rstd, kept});
    DropoutState{p, seed, site}.save(ctx);
    return {y, mean, rstd, kept};
  }
  static variable_list gradients(AutogradContext* ctx, const Tensor& grad, const variable_list& saved) {
    const auto drop = DropoutState::load(ctx);
    auto [dx, dbias, dresidual, dgamma, dbeta] = dispatch::bias_dropout_residual_layer_norm_backward(
        grad, saved[0], saved[1], saved[2], saved[3], saved[4], saved[5], drop.p, drop.seed, drop.site,
        optional(saved[6]), saved[7]);
    add_to_sums({{saved[1], dbias}, {saved[5], dgamma}, {saved[8], dbeta}});
    return {dx, dbias, dresidual, dgamma, dbeta, Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

std::tuple<Tensor, Tensor, Tensor, Tensor> cast_bias_dropout_residual_layer_norm(
    const Autocast& /*cast*/, const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& gamma,
    const Tensor& beta, double eps, double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
  checks::bias_dropout_residual_layer_norm(x, bias, residual, gamma, beta, eps, p, seed, site, keys);
  return dispatch::bias_dropout_residual_layer_norm(x, bias, residual.to(x.scalar_type()), gamma, beta, eps, p, seed,
                                                    site, keys);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(bert, m) {
  define<layer_norm>(
      m, "layer_norm(Tensor x, Tensor gamma, Tensor beta, float eps) -> (Tensor y, Tensor mean, Tensor rstd)");
  define<layer_norm_backward>(m,
                              "layer_norm_backward(Tensor grad, Tensor x, Tensor mean, Tensor rstd, Tensor gamma) -> "
                              "(Tensor dx, Tensor dgamma, Tensor dbeta)");
  define<bias_dropout_residual_layer_norm>(
      m,
      "bias_dropout_residual_layer_norm(Tensor x, Tensor bias, Tensor residual, Tensor gamma, Tensor beta, float eps, "
      "float p, int seed, int site, Tensor? keys) -> (Tensor y, Tensor mean, Tensor rstd, Tensor kept)");
  define<bias_dropout_residual_layer_norm_backward>(
      m,
      "bias_dropout_residual_layer_norm_backward(Tensor grad, Tensor x, Tensor bias, Tensor residual, Tensor mean, "
      "Tensor rstd, Tensor gamma, float p, int seed, int site, Tensor? keys, Tensor kept) -> (Tensor dx, Tensor dbias, "
      "Tensor dresidual, Tensor dgamma, Tensor dbeta)");
  differentiate<layer_norm, LayerNorm>(m);
  autocast_ignores<layer_norm>(m);
  differentiate<bias_dropout_residual_layer_norm, BiasDropoutResidualLayerNorm>(m);
  autocast<bias_dropout_residual_layer_norm, cast_bias_dropout_residual_layer_norm>(m);
}

}  // namespace bert::dispatch

namespace bert::ops {

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& gamma, const at::Tensor& beta, double eps) {
  return std::get<0>(dispatch::layer_norm(x, gamma, beta, eps));
}

at::Tensor bias_dropout_residual_layer_norm(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                                            const at::Tensor& gamma, const at::Tensor& beta, double eps,
                                            const Dropout& dropout) {
  return std::get<0>(dispatch::bias_dropout_residual_layer_norm(
      x, bias, residual, gamma, beta, eps, dropout.p, dropout.seed, dropout.site, dispatch::optional(dropout.keys)));
}

}  // namespace bert::ops
