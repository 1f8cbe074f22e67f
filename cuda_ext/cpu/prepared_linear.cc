#include "cuda_ext/prepared_linear.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <utility>

#include "cuda_ext/cpu/int8_linear.h"
#include "cuda_ext/cpu/linear.h"
#include "cuda_ext/dispatch/operator.h"
#include "cuda_ext/ops.h"

namespace bert {
namespace cpu {
namespace {

/// Weights from this size on are laid out for oneDNN. The products of smaller ones are below kSmall of linear.cc for
/// the lengths of usual texts.
constexpr int64_t kLaidOut = 1 << 18;

/// The weight in the layout that oneDNN's kernels read. Without it they copy each part of the weight to that layout in
/// every product, or slower kernels run. The layout fits any number of rows; the hint matters to kernels for a few rows.
Tensor laid_out(const Tensor& weight) {
  constexpr int64_t kRows = 512;
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_reorder_linear_weight", "");
  torch::jit::Stack stack = {weight, kRows};
  op.callBoxed(&stack);
  return std::move(stack.front()).toTensor();
}

std::function<Tensor(const Tensor&)> prepared(const Tensor& given, const Tensor& given_bias) {
  const at::ScalarType type = given.scalar_type(), computed = widened(given) ? at::kFloat : type;
  const auto copy = [&](const Tensor& x) { return x.to(computed, /*non_blocking=*/false, /*copy=*/true); };
  const Tensor bias = given_bias.defined() ? copy(given_bias) : Tensor();
  const bool in_layout = given.numel() >= kLaidOut && has_one_dnn();
  const auto product = in_layout ? linear_pointwise : product_and_bias;
  Tensor weight = in_layout ? laid_out(given.to(computed)) : given;
  if (!weight.is_mkldnn()) weight = copy(weight);  // it may be the weight that was given
  return [weight, bias, type, computed, product](const Tensor& x) {
    return product(x.to(computed), weight, dispatch::optional(bias)).to(type);
  };
}

}  // namespace
}  // namespace cpu

namespace ops {

PreparedLinear::PreparedLinear(const at::Tensor& weight, const at::Tensor& bias, Products products) {
  TORCH_CHECK(weight.defined() && weight.dim() == 2, "PreparedLinear: weight must be [N, K], got ", weight.sizes(),
              ".");
  TORCH_CHECK(!bias.defined() ||
                  (bias.dim() == 1 && bias.size(0) == weight.size(0) && bias.scalar_type() == weight.scalar_type()),
              "PreparedLinear: bias must be [", weight.size(0), "] ", weight.scalar_type(), ", got ", bias.sizes(),
              ".");
  if (products == Products::kInt8) {
    product_ = cpu::int8_linear(weight, bias);
  } else if (weight.is_cpu() && weight.scalar_type() != at::kDouble) {
    product_ = cpu::prepared(weight, bias);
  } else {
    product_ = [weight = weight.detach().clone(), bias = bias.defined() ? bias.detach().clone() : bias](
                   const at::Tensor& x) { return linear(x, weight, bias); };
  }
}

}  // namespace ops
}  // namespace bert
