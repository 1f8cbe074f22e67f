#include "cuda_ext/dispatch/linear.h"

#include <ATen/ATen.h>

#include "cuda_ext/dispatch/argument_checks.h"
#include "cuda_ext/dispatch/derivative.h"
#include "cuda_ext/dispatch/linear_gradients.h"
#include "cuda_ext/ops.h"
#include "cuda_ext/padded_linear.h"

namespace bert::composite {

Tensor padded_rows(const Tensor& tensor, int64_t rows, at::ScalarType dtype) {
  const int64_t own = tensor.size(0);
  if (rows == own) return tensor.to(dtype);
  at::DimVector sizes(tensor.sizes());
  sizes[0] = rows;
  const Tensor padded = at::empty(sizes, tensor.options().dtype(dtype));
  padded.narrow(0, 0, own).copy_(tensor);
  padded.narrow(0, own, rows - own).zero_();
  return padded;
}

Tensor join(const Tensor& first, const Tensor& second, const Tensor& third) {
  const auto follows = [](const Tensor& a, const Tensor& b) {
    return a.is_alias_of(b) && b.storage_offset() == a.storage_offset() + a.numel() && a.sizes() == b.sizes();
  };
  if (!follows(first, second) || !follows(second, third)) return at::cat({first, second, third});
  at::DimVector sizes(first.sizes());
  sizes[0] *= 3;
  return first.as_strided(sizes, first.strides());
}

Tensor linear(const Tensor& x, const Tensor& weight, const OptionalTensor& bias) { return at::linear(x, weight, bias); }

Tensor bias_gradient(const Tensor& grad) {
  return at::sum(grad, {0}, false, accumulation_type(grad)).to(grad.scalar_type());
}

std::tuple<Tensor, Tensor, Tensor> linear_backward(const Tensor& grad, const Tensor& x, const Tensor& weight,
                                                   std::array<bool, 3> needed) {
  return {needed[0] ? at::mm(grad, weight) : Tensor(), needed[1] ? at::mm(grad.t(), x) : Tensor(),
          needed[2] ? bias_gradient(grad) : Tensor()};
}

std::tuple<Tensor, Tensor> linear_sums(const Tensor& grad, const Tensor& x) {
  const auto type = accumulation_type(grad);
  return {at::mm(grad.t().to(type), x.to(type)), at::sum(grad, {0}, false, type)};
}

Tensor qkv_linear(const Tensor& x, const Tensor& query_weight, const Tensor& key_weight, const Tensor& value_weight,
                  const Tensor& query_bias, const Tensor& key_bias, const Tensor& value_bias) {
  return dispatch::linear(x, join(query_weight, key_weight, value_weight).to(x.scalar_type()),
                          join(query_bias, key_bias, value_bias).to(x.scalar_type()));
}

Tensor padded_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t columns) {
  return dispatch::linear(x, padded_rows(weight, columns, x.scalar_type()),
                          padded_rows(bias, columns, x.scalar_type()));
}

}  // namespace bert::composite

namespace bert::checks {

void linear(const Tensor& x, const Tensor& weight, const OptionalTensor& bias) {
  constexpr auto kOp = "linear";
  check(kOp, "x", x, {-1, -1}, x);
  check(kOp, "weight", weight, {-1, x.size(1)}, x);
  if (bias) check(kOp, "bias", *bias, {weight.size(0)}, x);
  constexpr auto kRemedy = ". Convert one of them, or use autocast.";
  check_type(kOp, "weight", weight, x.scalar_type(), "as x is", kRemedy);
  if (bias) check_type(kOp, "bias", *bias, x.scalar_type(), "as x is", kRemedy);
}

void linear_backward(const Tensor& grad, const Tensor& x, const Tensor& weight, std::array<bool, 3> /*needed*/) {
  constexpr auto kOp = "linear_backward";
  check(kOp, "x", x, {-1, -1}, x);
  check(kOp, "weight", weight, {-1, x.size(1)}, x);
  check(kOp, "grad", grad, {x.size(0), weight.size(0)}, x);
  check_type(kOp, "weight", weight, x.scalar_type(), "as x is");
  check_type(kOp, "grad", grad, x.scalar_type(), "as x is");
}

void linear_sums(const Tensor& grad, const Tensor& x) {
  constexpr auto kOp = "linear_sums";
  check(kOp, "x", x, {-1, -1}, x);
  check(kOp, "grad", grad, {x.size(0), -1}, x);
  check_type(kOp, "grad", grad, x.scalar_type(), "as x is");
}

void qkv_linear(const Tensor& x, const Tensor& query_weight, const Tensor& key_weight, const Tensor& value_weight,
                const Tensor& query_bias, const Tensor& key_bias, const Tensor& value_bias) {
  constexpr auto kOp = "qkv_linear";
  check(kOp, "x", x, {-1, -1}, x);
  check(kOp, "query_weight", query_weight, {-1, x.size(1)}, x);
  const int64_t hidden = query_weight.size(0);
  check(kOp, "key_weight", key_weight, {hidden, x.size(1)}, x);
  check(kOp, "value_weight", value_weight, {hidden, x.size(1)}, x);
  check(kOp, "query_bias", query_bias, {hidden}, x);
  check(kOp, "key_bias", key_bias, {hidden}, x);
  check(kOp, "value_bias", value_bias, {hidden}, x);
}

void padded_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t columns) {
  constexpr auto kOp = "padded_linear";
  check(kOp, "x", x, {-1, -1}, x);
  check(kOp, "weight", weight, {-1, x.size(1)}, x);
  check(kOp, "bias", bias, {weight.size(0)}, x);
  TORCH_CHECK(columns >= weight.size(0), kOp, ": columns must be at least the weight's ", weight.size(0), " rows, got ",
              columns);
}

}  // namespace bert::checks

namespace bert::dispatch {
namespace {

struct Linear : Differentiable<Linear> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight, const OptionalTensor& bias) {
    return forward(ctx, x, weight, weight, bias);
  }
  /// `used`: the weight in x's dtype.
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight, const Tensor& used,
                        const OptionalTensor& bias) {
    const Forward scope(ctx);
    ctx->save_for_backward({x, used, weight});
    ctx->saved_data["bias"] = bias.has_value() && bias->requires_grad();
    return dispatch::linear(x, used, bias);
  }
  static variable_list gradients(AutogradContext* ctx, const Tensor& grad, const variable_list& saved,
                                 const Tensor& residual = {}) {
    const bool of_weight = ctx->needs_input_grad(1), of_bias = ctx->saved_data["bias"].toBool();
    if (grad.is_cuda()) {
      return {input_gradient(ctx, grad, saved[1], residual),
              of_weight ? weight_gradient(grad, saved[0], saved[2]) : Tensor(),
              of_bias ? composite::bias_gradient(grad) : Tensor()};
    }
    auto [dx, dweight, dbias] = dispatch::linear_backward(
        grad, saved[0], saved[1], std::array<bool, 3>{ctx->needs_input_grad(0), of_weight, of_bias});
    return {dx, dweight, dbias};
  }
};

/// Linear, with a weight of any dtype.
struct ConvertedLinear : Differentiable<ConvertedLinear> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight, const OptionalTensor& bias) {
    return Linear::forward(ctx, x, weight, weight.to(x.scalar_type()), bias);
  }
  static variable_list gradients(AutogradContext* ctx, const Tensor& grad, const variable_list& saved,
                                 const Tensor& residual = {}) {
    return Linear::gradients(ctx, grad, saved, residual);
  }
};

struct QkvLinear : Differentiable<QkvLinear> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& query_weight, const Tensor& key_weight,
                        const Tensor& value_weight, const Tensor& query_bias, const Tensor& key_bias,
                        const Tensor& value_bias) {
    const Forward scope(ctx);
    checks::qkv_linear(x, query_weight, key_weight, value_weight, query_bias, key_bias, value_bias);
    const std::vector<Tensor> used = converted(
        {composite::join(query_weight, key_weight, value_weight), composite::join(query_bias, key_bias, value_bias)},
        x.scalar_type());
    ctx->save_for_backward({x, used[0], query_weight, key_weight, value_weight, query_bias, key_bias, value_bias});
    return dispatch::linear(x, used[0], used[1]);
  }
  static variable_list gradients(AutogradContext* ctx, const Tensor& grad, const variable_list& saved,
                                 const Tensor& residual = {}) {
    const auto type = saved[2].scalar_type();
    Tensor dx, dweight, dbias;
    if (grad.is_cuda() && type == composite::accumulation_type(grad)) {
      dx = input_gradient(ctx, grad, saved[1], residual);
      std::tie(dweight, dbias) = dispatch::linear_sums(grad, saved[0]);
    } else {
      std::tie(dx, dweight, dbias) = dispatch::linear_backward(
          grad, saved[0], saved[1], std::array<bool, 3>{ctx->needs_input_grad(0), true, true});
      if (residual.defined() && dx.defined()) dx = dx + residual;
    }
    auto weights = dweight.to(type).chunk(3), biases = dbias.to(type).chunk(3);
    add_to_sums({{saved[2], weights[0]},
                 {saved[3], weights[1]},
                 {saved[4], weights[2]},
                 {saved[5], biases[0]},
                 {saved[6], biases[1]},
                 {saved[7], biases[2]}});
    return {dx, weights[0], weights[1], weights[2], biases[0], biases[1], biases[2]};
  }
};

struct PaddedLinear : Differentiable<PaddedLinear> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight, const Tensor& bias,
                        int64_t columns) {
    const Forward scope(ctx);
    checks::padded_linear(x, weight, bias, columns);
    const Tensor padded = composite::padded_rows(weight, columns, x.scalar_type());
    ctx->save_for_backward({x, padded});
    ctx->saved_data["dtype"] = weight.scalar_type();
    ctx->saved_data["rows"] = weight.size(0);
    return dispatch::linear(x, padded, composite::padded_rows(bias, columns, x.scalar_type()));
  }
  static variable_list gradients(AutogradContext* ctx, const Tensor& grad, const variable_list& saved) {
    const auto type = ctx->saved_data["dtype"].toScalarType();
    const int64_t rows = ctx->saved_data["rows"].toInt();
    auto [dx, dweight, dbias] =
        dispatch::linear_backward(grad, saved[0], saved[1], std::array<bool, 3>{ctx->needs_input_grad(0), true, true});
    return {dx, dweight.narrow(0, 0, rows).to(type), dbias.narrow(0, 0, rows).to(type), Tensor()};
  }
};

Tensor cast_linear(const Autocast& cast, const Tensor& x, const Tensor& weight, const OptionalTensor& bias) {
  const OptionalTensor low_bias = bias ? OptionalTensor(cast.low(*bias)) : std::nullopt;
  // Note [Gradients in place] needs the parameter itself.
  if (x.defined() && weight.is_cuda()) return ConvertedLinear::apply(cast.low(x), weight, low_bias);
  return dispatch::linear(cast.low(x), cast.low(weight), low_bias);
}

// The operator itself converts the joined weight in one piece.
Tensor cast_qkv_linear(const Autocast& cast, const Tensor& x, const Tensor& query_weight, const Tensor& key_weight,
                       const Tensor& value_weight, const Tensor& query_bias, const Tensor& key_bias,
                       const Tensor& value_bias) {
  return dispatch::qkv_linear(cast.low(x), query_weight, key_weight, value_weight, query_bias, key_bias, value_bias);
}

// The operator itself converts the weight while it adds the padding.
Tensor cast_padded_linear(const Autocast& cast, const Tensor& x, const Tensor& weight, const Tensor& bias,
                          int64_t columns) {
  return dispatch::padded_linear(cast.low(x), weight, bias, columns);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(bert, m) {
  define<linear>(m, "linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor");
  define<linear_backward>(
      m, "linear_backward(Tensor grad, Tensor x, Tensor weight, bool[3] needed) -> (Tensor, Tensor, Tensor)");
  define<linear_sums>(m, "linear_sums(Tensor grad, Tensor x) -> (Tensor dweight, Tensor dbias)");
  define<qkv_linear>(m,
                     "qkv_linear(Tensor x, Tensor query_weight, Tensor key_weight, Tensor value_weight, Tensor "
                     "query_bias, Tensor key_bias, Tensor value_bias) -> Tensor");
  define<padded_linear>(m, "padded_linear(Tensor x, Tensor weight, Tensor bias, int columns) -> Tensor");
  differentiate<linear, Linear>(m);
  autocast<linear, cast_linear>(m);
  differentiate<qkv_linear, QkvLinear>(m);
  autocast<qkv_linear, cast_qkv_linear>(m);
  differentiate<padded_linear, PaddedLinear>(m);
  autocast<padded_linear, cast_padded_linear>(m);
}

}  // namespace bert::dispatch

namespace bert::ops {

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return dispatch::linear(x, weight, dispatch::optional(bias));
}

at::Tensor qkv_linear(const at::Tensor& x, const QkvParameters& parameters) {
  return dispatch::qkv_linear(x, parameters.query_weight, parameters.key_weight, parameters.value_weight,
                              parameters.query_bias, parameters.key_bias, parameters.value_bias);
}

BesideResidual linear_beside_residual(const at::Tensor& x, const at::Tensor& weight) {
  if (!x.is_cuda()) return {linear(x, weight, at::Tensor()), x};
  return dispatch::beside_residual<dispatch::ConvertedLinear>(x, weight, std::optional<at::Tensor>());
}

BesideResidual qkv_linear_beside_residual(const at::Tensor& x, const QkvParameters& parameters) {
  if (!x.is_cuda()) return {qkv_linear(x, parameters), x};
  return dispatch::beside_residual<dispatch::QkvLinear>(x, parameters.query_weight, parameters.key_weight,
                                                        parameters.value_weight, parameters.query_bias,
                                                        parameters.key_bias, parameters.value_bias);
}

at::Tensor padded_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, int64_t columns) {
  return dispatch::padded_linear(x, weight, bias, columns);
}

}  // namespace bert::ops
