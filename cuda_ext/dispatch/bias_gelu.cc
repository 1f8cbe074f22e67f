#include "cuda_ext/dispatch/bias_gelu.h"

#include <ATen/ATen.h>

#include "cuda_ext/dispatch/argument_checks.h"
#include "cuda_ext/dispatch/derivative.h"
#include "cuda_ext/ops.h"

namespace bert::composite {

namespace {

const char* gelu_form(bool tanh) { return tanh ? "tanh" : "none"; }

}  // namespace

Tensor bias_gelu(const Tensor& x, const Tensor& bias, bool tanh) {
  const auto type = accumulation_type(x);
  return at::gelu(x.to(type) + bias.to(type), gelu_form(tanh)).to(x.scalar_type());
}

std::tuple<Tensor, Tensor> bias_gelu_backward(const Tensor& grad, const Tensor& x, const Tensor& bias, bool tanh) {
  const auto type = accumulation_type(x);
  const Tensor dx = at::gelu_backward(grad.to(type), x.to(type) + bias.to(type), gelu_form(tanh));
  return {dx.to(x.scalar_type()), dx.sum(0).to(bias.scalar_type())};
}

}  // namespace bert::composite

namespace bert::checks {

void bias_gelu(const Tensor& x, const Tensor& bias, bool /*tanh*/) {
  constexpr auto kOp = "bias_gelu";
  check(kOp, "x", x, {-1, -1}, x);
  check(kOp, "bias", bias, {x.size(1)}, x);
}

void bias_gelu_backward(const Tensor& grad, const Tensor& x, const Tensor& bias, bool /*tanh*/) {
  constexpr auto kOp = "bias_gelu_backward";
  check(kOp, "x", x, {-1, -1}, x);
  check(kOp, "bias", bias, {x.size(1)}, x);
  check(kOp, "grad", grad, x.sizes(), x);
}

}  // namespace bert::checks

namespace bert::dispatch {
namespace {

struct BiasGelu : Differentiable<BiasGelu> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& bias, bool tanh) {
    const Forward scope(ctx);
    ctx->save_for_backward({x, bias});
    ctx->saved_data["tanh"] = tanh;
    return dispatch::bias_gelu(x, bias, tanh);
  }
  static variable_list gradients(AutogradContext* ctx, const Tensor& grad, const variable_list& saved) {
    auto [dx, dbias] = dispatch::bias_gelu_backward(grad, saved[0], saved[1], ctx->saved_data["tanh"].toBool());
    return {dx, dbias, Tensor()};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(bert, m) {
  define<bias_gelu>(m, "bias_gelu(Tensor x, Tensor bias, bool tanh) -> Tensor");
  define<bias_gelu_backward>(
      m, "bias_gelu_backward(Tensor grad, Tensor x, Tensor bias, bool tanh) -> (Tensor dx, Tensor dbias)");
  differentiate<bias_gelu, BiasGelu>(m);
  autocast_ignores<bias_gelu>(m);
}

}  // namespace bert::dispatch

namespace bert::ops {

at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias, Gelu form) {
  return dispatch::bias_gelu(x, bias, form == Gelu::kTanh);
}

}  // namespace bert::ops
