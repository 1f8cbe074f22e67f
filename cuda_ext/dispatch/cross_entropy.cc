#include "cuda_ext/dispatch/cross_entropy.h"

#include <ATen/ATen.h>

#include <limits>

#include "cuda_ext/dispatch/argument_checks.h"
#include "cuda_ext/dispatch/derivative.h"
#include "cuda_ext/ops.h"

namespace bert::composite {

namespace {

/// [M] of x's dtype: 0, and NaN where the label is not in [0, num_classes).
Tensor nan_outside(const Tensor& labels, int64_t num_classes, const Tensor& x) {
  const Tensor outside = labels.lt(0).logical_or_(labels.ge(num_classes));
  return at::zeros(labels.sizes(), x.options()).masked_fill_(outside, std::numeric_limits<double>::quiet_NaN());
}

/// [M] bool: the rows that take no part.
Tensor left_out(const Tensor& counted, const Tensor& labels) {
  return at::arange(labels.size(0), labels.options()).ge(counted);
}

}  // namespace

std::tuple<Tensor, Tensor> cross_entropy(const Tensor& logits, const Tensor& labels, int64_t num_classes,
                                         const OptionalTensor& counted) {
  const Tensor x = logits.narrow(1, 0, num_classes).to(accumulation_type(logits));
  if (labels.numel() == 0) return {at::zeros({}, x.options()), at::empty({0}, x.options())};
  const Tensor logsumexp = at::logsumexp(x, {1});
  const Tensor chosen = x.gather(1, labels.clamp(0, num_classes - 1).unsqueeze(1)).squeeze(1);
  const Tensor rows = logsumexp - chosen + nan_outside(labels, num_classes, x);
  if (!counted) return {rows.mean(), logsumexp};
  return {rows.masked_fill(left_out(*counted, labels), 0.0).sum() / counted->clamp_min(1.0).to(x.scalar_type()),
          logsumexp};
}

Tensor& cross_entropy_backward_(Tensor& logits, const Tensor& grad, const Tensor& labels, const Tensor& logsumexp,
                                int64_t num_classes, const OptionalTensor& counted) {
  if (labels.numel() == 0) return logits;
  const Tensor x = logits.narrow(1, 0, num_classes).to(logsumexp.scalar_type());
  Tensor dx = at::exp(x - (logsumexp + nan_outside(labels, num_classes, x)).unsqueeze(1));
  // Without scatter_add_, because LibTorch has no deterministic one on CUDA.
  dx -= labels.unsqueeze(1).eq(at::arange(num_classes, labels.options())).to(dx.scalar_type());
  logits.zero_();
  const Tensor share = counted ? grad / counted->clamp_min(1.0) : grad / static_cast<double>(labels.size(0));
  dx *= share;
  if (counted) dx.masked_fill_(left_out(*counted, labels).unsqueeze(1), 0.0);
  logits.narrow(1, 0, num_classes).copy_(dx);
  return logits;
}

}  // namespace bert::composite

namespace bert::checks {

namespace {

void check_logits(const char* op, const Tensor& logits, const Tensor& labels, int64_t num_classes,
                  const OptionalTensor& counted) {
  check(op, "logits", logits, {-1, -1}, logits);
  TORCH_CHECK(num_classes > 0 && num_classes <= logits.size(1), op, ": num_classes must be in [1, ", logits.size(1),
              "], got ", num_classes);
  check_integers(op, "labels", labels, logits.size(0), at::kLong, logits);
  check_range(op, "labels", labels, num_classes);
  if (!counted) return;
  check(op, "counted", *counted, {}, logits);
  check_type(op, "counted", *counted, at::kFloat, "as counts are");
  if (!counted->is_cpu()) return;
  TORCH_CHECK(counted->item<float>() >= 0 && counted->item<float>() <= static_cast<float>(labels.size(0)), op,
              ": counted must be in [0, ", labels.size(0), "], got ", counted->item<float>());
}

}  // namespace

void cross_entropy(const Tensor& logits, const Tensor& labels, int64_t num_classes, const OptionalTensor& counted) {
  check_logits("cross_entropy", logits, labels, num_classes, counted);
}

void cross_entropy_backward_(Tensor& logits, const Tensor& grad, const Tensor& labels, const Tensor& logsumexp,
                             int64_t num_classes, const OptionalTensor& counted) {
  constexpr auto kOp = "cross_entropy_backward_";
  check_logits(kOp, logits, labels, num_classes, counted);
  check(kOp, "grad", grad, {}, logits);
  check_statistic(kOp, "logsumexp", logsumexp, {logits.size(0)}, logits);
}

}  // namespace bert::checks

namespace bert::dispatch {
namespace {

struct CrossEntropy : Differentiable<CrossEntropy> {
  static variable_list forward(AutogradContext* ctx, const Tensor& logits, const Tensor& labels, int64_t num_classes,
                               const OptionalTensor& counted) {
    const Forward scope(ctx);
    auto [loss, logsumexp] = dispatch::cross_entropy(logits, labels, num_classes, counted);
    ctx->save_for_backward({logits, labels, logsumexp, counted.value_or(Tensor())});
    ctx->saved_data["num_classes"] = num_classes;
    ctx->mark_non_differentiable({logsumexp});
    return {loss, logsumexp};
  }
  static variable_list gradients(AutogradContext* ctx, const Tensor& grad, const variable_list& saved) {
    // Note [Gradient in place of the logits]
    // The logits are not visible elsewhere if the saved variable and its twin here are the only holders of the tensor,
    // and the tensor is the only holder of its storage. Then the gradient overwrites them. The version is increased, so
    // that a second backward is an error.
    const bool ours = saved[0].use_count() <= 2 && saved[0].storage().use_count() == 1;
    Tensor dlogits = ours ? saved[0].detach() : saved[0].clone();
    if (ours) saved[0].unsafeGetTensorImpl()->bump_version();
    dispatch::cross_entropy_backward_(dlogits, grad, saved[1], saved[2], ctx->saved_data["num_classes"].toInt(),
                                      optional(saved[3]));
    return {dlogits, Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(bert, m) {
  define<cross_entropy>(
      m,
      "cross_entropy(Tensor logits, Tensor labels, int num_classes, Tensor? counted=None) -> (Tensor loss, Tensor "
      "logsumexp)");
  define<cross_entropy_backward_>(m,
                                  "cross_entropy_backward_(Tensor(a!) logits, Tensor grad, Tensor labels, Tensor "
                                  "logsumexp, int num_classes, Tensor? counted=None) -> Tensor(a!)");
  differentiate<cross_entropy, CrossEntropy>(m);
  autocast_ignores<cross_entropy>(m);
}

}  // namespace bert::dispatch

namespace bert::ops {

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels, int64_t num_classes,
                         const at::Tensor& counted) {
  return std::get<0>(dispatch::cross_entropy(logits, labels, num_classes, dispatch::optional(counted)));
}

CrossEntropyOfRows cross_entropy_of_rows(const at::Tensor& logits, const at::Tensor& labels, int64_t num_classes,
                                         const at::Tensor& counted) {
  const auto [mean, logsumexp] = dispatch::cross_entropy(logits, labels, num_classes, dispatch::optional(counted));
  const at::NoGradGuard no_grad;
  const at::Tensor chosen = logits.gather(1, labels.clamp(0, num_classes - 1).unsqueeze(1)).squeeze(1);
  const at::Tensor rows = logsumexp - chosen.to(logsumexp.scalar_type());
  return {.mean = mean, .rows = counted.defined() ? rows.masked_fill(composite::left_out(counted, labels), 0.0) : rows};
}

}  // namespace bert::ops
