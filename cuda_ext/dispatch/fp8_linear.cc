#include "cuda_ext/dispatch/fp8_linear.h"

#include <ATen/ATen.h>

#include "cuda_ext/dispatch/argument_checks.h"
#include "cuda_ext/dispatch/derivative.h"
#include "cuda_ext/dispatch/linear.h"
#include "cuda_ext/fp8_linear.h"
#include "cuda_ext/scalar/math.h"

namespace bert::composite {
namespace {

enum Operand : int64_t { kInput, kWeight, kGradient };  // places in scales and amaxes

/// The tensor in FP8, by its scale; raises its amax.
Tensor in_fp8(const Tensor& tensor, Operand operand, const Tensor& scales, const Tensor& amaxes) {
  const Tensor values = tensor.to(at::kFloat);
  if (values.numel() > 0) amaxes[operand].copy_(at::maximum(amaxes[operand], values.abs().max()));
  const bool gradient = operand == kGradient;
  const double most = gradient ? kMostOfFp8<Fp8::kE5M2> : kMostOfFp8<Fp8::kE4M3>;
  return (values * scales[0][operand]).clamp_(-most, most).to(gradient ? at::kFloat8_e5m2 : at::kFloat8_e4m3fn);
}

/// The bytes of the transposed matrix, with columns of zeros.
Tensor transposed_bytes(const Tensor& in_fp8, int64_t columns) {
  const Tensor bytes = at::zeros({in_fp8.size(1), columns}, in_fp8.options().dtype(at::kByte));
  bytes.narrow(1, 0, in_fp8.size(0)).copy_(in_fp8.view(at::kByte).t());
  return bytes;
}

/// The numbers of the first `rows` columns of such bytes, [rows, K] in fp32.
Tensor numbers_of(const Tensor& bytes, int64_t rows) {
  return bytes.narrow(1, 0, rows).t().contiguous().view(at::kFloat8_e4m3fn).to(at::kFloat);
}

}  // namespace

Tensor joined(TensorList tensors) {
  return tensors.size() == 1 ? tensors[0] : join(tensors[0], tensors[1], tensors[2]);
}

std::tuple<Tensor, Tensor, Tensor> fp8_linear(const Tensor& x, TensorList weights, TensorList biases,
                                              const Tensor& scales, const Tensor& amaxes) {
  const Tensor input = in_fp8(x, kInput, scales, amaxes), weight = in_fp8(joined(weights), kWeight, scales, amaxes);
  Tensor y = dispatch::linear(input.to(at::kFloat), weight.to(at::kFloat), std::nullopt) *
             (scales[1][kInput] * scales[1][kWeight]);
  if (!biases.empty()) y.add_(joined(biases));
  return {y.to(x.scalar_type()), transposed_bytes(input, fp8_rows(x.size(0))),
          transposed_bytes(weight, weight.size(0))};
}

std::tuple<Tensor, Tensor, Tensor> fp8_linear_backward(const Tensor& grad, const Tensor& x, const Tensor& weight,
                                                       const Tensor& scales, const Tensor& amaxes,
                                                       std::array<bool, 3> needed) {
  const Tensor rounded = in_fp8(grad, kGradient, scales, amaxes).to(at::kFloat);
  auto [dx, dweight, dbias] =
      dispatch::linear_backward(rounded, numbers_of(x, grad.size(0)), numbers_of(weight, grad.size(1)),
                                std::array<bool, 3>{needed[0], needed[1], false});
  if (needed[0]) dx = dx.mul_(scales[1][kGradient] * scales[1][kWeight]).to(grad.scalar_type());
  if (needed[1]) dweight.mul_(scales[1][kGradient] * scales[1][kInput]);
  return {dx, dweight, needed[2] ? at::sum(grad, {0}, false, at::kFloat) : Tensor()};
}

}  // namespace bert::composite

namespace bert::checks {
namespace {

void check_scaling(const char* op, const Tensor& scales, const Tensor& amaxes, const Tensor& like) {
  check(op, "scales", scales, {2, 3}, like);
  check(op, "amaxes", amaxes, {3}, like);
  check_type(op, "scales", scales, at::kFloat, "whatever x is");
  check_type(op, "amaxes", amaxes, at::kFloat, "whatever x is");
}

}  // namespace

void fp8_linear(const Tensor& x, at::TensorList weights, at::TensorList biases, const Tensor& scales,
                const Tensor& amaxes) {
  constexpr auto kOp = "fp8_linear";
  check(kOp, "x", x, {-1, -1}, x);
  TORCH_CHECK(weights.size() == 1 || weights.size() == 3, kOp, ": weights must be 1 or 3, got ", weights.size());
  TORCH_CHECK(biases.empty() || biases.size() == weights.size(), kOp, ": biases must be none or ", weights.size(),
              ", got ", biases.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    check(kOp, "a weight", weights[i], {i == 0 ? -1 : weights[0].size(0), x.size(1)}, x);
    if (!biases.empty()) check(kOp, "a bias", biases[i], {weights[0].size(0)}, x);
  }
  check_scaling(kOp, scales, amaxes, x);
}

void fp8_linear_backward(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& scales,
                         const Tensor& amaxes, std::array<bool, 3> /*needed*/) {
  constexpr auto kOp = "fp8_linear_backward";
  check(kOp, "grad", grad, {-1, -1}, grad);
  check_tensor(kOp, "x", x, {-1, composite::fp8_rows(grad.size(0))}, grad);
  check_tensor(kOp, "weight", weight, {x.size(0), grad.size(1)}, grad);
  check_type(kOp, "x", x, at::kByte, "as forward returns it");
  check_type(kOp, "weight", weight, at::kByte, "as forward returns it");
  check_scaling(kOp, scales, amaxes, grad);
}

}  // namespace bert::checks

namespace bert::dispatch {
namespace {

using at::TensorList;

struct Fp8Linear : Differentiable<Fp8Linear> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, TensorList weights, TensorList biases,
                               const Tensor& scales, const Tensor& amaxes) {
    const Forward scope(ctx);
    auto [y, input, weight] = dispatch::fp8_linear(x, weights, biases, scales, amaxes);
    ctx->save_for_backward({input, weight, scales});
    ctx->mark_non_differentiable({input, weight});
    ctx->saved_data["amaxes"] = amaxes;  // (a saved variable may not change)
    ctx->saved_data["weights"] = static_cast<int64_t>(weights.size());
    ctx->saved_data["biases"] = static_cast<int64_t>(biases.size());
    ctx->saved_data["dtype"] = weights[0].scalar_type();
    return {y, input, weight};
  }
  static variable_list gradients(AutogradContext* ctx, const Tensor& grad, const variable_list& saved) {
    const int64_t weights = ctx->saved_data["weights"].toInt(), biases = ctx->saved_data["biases"].toInt();
    const auto type = ctx->saved_data["dtype"].toScalarType();
    auto [dx, dweight, dbias] = dispatch::fp8_linear_backward(
        grad, saved[0], saved[1], saved[2], ctx->saved_data["amaxes"].toTensor(),
        std::array<bool, 3>{ctx->needs_input_grad(0), ctx->needs_input_grad(1), biases > 0});
    variable_list all = {dx};
    const auto add = [&](const Tensor& of_all, int64_t parts) {
      if (parts == 0) return;
      const auto each = of_all.defined() ? of_all.to(type).chunk(parts) : variable_list(static_cast<size_t>(parts));
      all.insert(all.end(), each.begin(), each.end());
    };
    add(dweight, weights);
    add(dbias, biases);
    all.resize(all.size() + 2);  // scales, amaxes
    return all;
  }
};

// The weights are rounded from their own dtype, once.
std::tuple<Tensor, Tensor, Tensor> cast_fp8_linear(const Autocast& cast, const Tensor& x, TensorList weights,
                                                   TensorList biases, const Tensor& scales, const Tensor& amaxes) {
  return dispatch::fp8_linear(cast.low(x), weights, biases, scales, amaxes);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(bert, m) {
  define<fp8_linear>(m,
                     "fp8_linear(Tensor x, Tensor[] weights, Tensor[] biases, Tensor scales, Tensor(a!) amaxes) -> "
                     "(Tensor y, Tensor x_bytes, Tensor weight_bytes)");
  define<fp8_linear_backward>(m,
                              "fp8_linear_backward(Tensor grad, Tensor x, Tensor weight, Tensor scales, Tensor(a!) "
                              "amaxes, bool[3] needed) -> (Tensor dx, Tensor dweight, Tensor dbias)");
  differentiate<fp8_linear, Fp8Linear>(m);
  autocast<fp8_linear, cast_fp8_linear>(m);
}

}  // namespace bert::dispatch

namespace bert::ops {

at::Tensor fp8_linear(const at::Tensor& x, at::TensorList weights, at::TensorList biases, const Fp8Scaling& scaling) {
  return std::get<0>(dispatch::fp8_linear(x, weights, biases, scaling.scales, scaling.amaxes));
}

}  // namespace bert::ops
