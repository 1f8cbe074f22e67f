#include "cuda_ext/dispatch/feed_forward.h"

#include <ATen/ATen.h>

#include "cuda_ext/dispatch/argument_checks.h"
#include "cuda_ext/dispatch/linear.h"
#include "cuda_ext/dispatch/linear_gradients.h"
#include "cuda_ext/ops.h"

namespace bert::composite {

std::tuple<Tensor, Tensor> linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Tensor z = at::linear(x, weight, bias);
  return {at::gelu(z, "tanh"), z};
}

std::tuple<Tensor, Tensor> linear_gelu_backward(const Tensor& grad, const Tensor& weight, const Tensor& z) {
  const auto type = accumulation_type(z);
  const Tensor dz = at::gelu_backward(at::mm(grad, weight).to(type), z.to(type), "tanh");
  return {dz.to(z.scalar_type()), dz.sum(0).to(z.scalar_type())};
}

}  // namespace bert::composite

namespace bert::checks {

void linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  constexpr auto kOp = "linear_gelu";
  check(kOp, "x", x, {-1, -1}, x);
  check(kOp, "weight", weight, {-1, x.size(1)}, x);
  check(kOp, "bias", bias, {weight.size(0)}, x);
  check_type(kOp, "weight", weight, x.scalar_type(), "as x is");
  check_type(kOp, "bias", bias, x.scalar_type(), "as x is");
}

void linear_gelu_backward(const Tensor& grad, const Tensor& weight, const Tensor& z) {
  constexpr auto kOp = "linear_gelu_backward";
  check(kOp, "z", z, {-1, -1}, z);
  check(kOp, "weight", weight, {-1, z.size(1)}, z);
  check(kOp, "grad", grad, {z.size(0), weight.size(0)}, z);
  check_type(kOp, "weight", weight, z.scalar_type(), "as z is");
  check_type(kOp, "grad", grad, z.scalar_type(), "as z is");
}

}  // namespace bert::checks

namespace bert::dispatch {
namespace {

/// gelu(x wide^T + bias) narrow^T in the tanh form, in a low precision on CUDA.
struct FeedForward {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& wide, const Tensor& bias,
                        const Tensor& narrow) {
    const Forward scope(ctx);
    const std::vector<Tensor> used = converted({wide, narrow, bias}, x.scalar_type());
    const auto [y, z] = dispatch::linear_gelu(x, used[0], used[2]);
    ctx->save_for_backward({x, y, z, used[0], used[1], wide, bias, narrow});
    return dispatch::linear(y, used[1], std::nullopt);
  }

  static variable_list gradients(AutogradContext* ctx, const Tensor& grad, const variable_list& saved,
                                 const Tensor& residual) {
    const Tensor &x = saved[0], &y = saved[1], &z = saved[2], &wide = saved[5], &bias = saved[6], &narrow = saved[7];
    const Tensor dnarrow = narrow.requires_grad() ? weight_gradient(grad, y, narrow) : Tensor();
    auto [dz, dbias] = dispatch::linear_gelu_backward(grad, saved[4], z);
    const Tensor dwide = wide.requires_grad() ? weight_gradient(dz, x, wide) : Tensor();
    add_to_sums({{bias, dbias}});
    return {input_gradient(ctx, dz, saved[3], residual), dwide, dbias.defined() ? dbias.to(bias.scalar_type()) : dbias,
            dnarrow};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(bert, m) {
  define<linear_gelu>(m, "linear_gelu(Tensor x, Tensor weight, Tensor bias) -> (Tensor y, Tensor z)");
  define<linear_gelu_backward>(
      m, "linear_gelu_backward(Tensor grad, Tensor weight, Tensor z) -> (Tensor dz, Tensor dbias)");
}

}  // namespace bert::dispatch

namespace bert::ops {

BesideResidual feed_forward_beside_residual(const at::Tensor& x, const FeedForwardParameters& p, Gelu form) {
  if (!x.is_cuda() || form != Gelu::kTanh || !dispatch::computes_in_low_precision(x)) {
    const auto [z, residual] = linear_beside_residual(x, p.wide);
    return {ops::linear(bias_gelu(z, p.bias, form), p.narrow, at::Tensor()), residual};
  }
  return dispatch::beside_residual<dispatch::FeedForward>(x, p.wide, p.bias, p.narrow);
}

}  // namespace bert::ops
