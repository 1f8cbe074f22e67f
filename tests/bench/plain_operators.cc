#include "tests/bench/plain_operators.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "cuda_ext/dispatch/attention.h"
#include "cuda_ext/dispatch/bias_gelu.h"
#include "cuda_ext/dispatch/cross_entropy.h"
#include "cuda_ext/dispatch/dropout.h"
#include "cuda_ext/dispatch/embedding.h"
#include "cuda_ext/dispatch/layer_norm.h"
#include "cuda_ext/dispatch/linear.h"
#include "cuda_ext/dispatch/softmax.h"
#include "cuda_ext/multi_tensor/backend.h"

namespace bert {
namespace plain {
namespace {

Tensor drop(const Tensor& x, double p) { return p > 0.0 ? at::dropout(x, p, /*train=*/true) : x; }

Tensor normalise(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  return at::layer_norm(x, {x.size(-1)}, gamma, beta, eps);
}

/// True for columns of padded sequences that are tokens, [B, S].
Tensor real_columns(const Tensor& cu_seqlens, int64_t columns) {
  return at::arange(columns, cu_seqlens.options()) < cu_seqlens.diff().unsqueeze(1);
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const OptionalTensor& bias) { return at::linear(x, weight, bias); }

Tensor qkv_linear(const Tensor& x, const Tensor& query_weight, const Tensor& key_weight, const Tensor& value_weight,
                  const Tensor& query_bias, const Tensor& key_bias, const Tensor& value_bias) {
  return at::cat({at::linear(x, query_weight, query_bias), at::linear(x, key_weight, key_bias),
                  at::linear(x, value_weight, value_bias)},
                 1);
}

Tensor padded_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t columns) {
  return at::constant_pad_nd(at::linear(x, weight, bias), {0, columns - weight.size(0)});
}

Tensor bias_gelu(const Tensor& x, const Tensor& bias, bool tanh) {
  return at::gelu(x + bias.to(x.scalar_type()), tanh ? "tanh" : "none");
}

std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  return {normalise(x, gamma, beta, eps), {}, {}};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> bias_dropout_residual_layer_norm(const Tensor& x, const Tensor& bias,
                                                                            const Tensor& residual, const Tensor& gamma,
                                                                            const Tensor& beta, double eps, double p,
                                                                            int64_t /*seed*/, int64_t /*site*/,
                                                                            const OptionalTensor& /*keys*/) {
  const Tensor sum = drop(x + bias.to(x.scalar_type()), p) + residual.to(x.scalar_type());
  return {normalise(sum, gamma, beta, eps).to(x.scalar_type()), {}, {}, {}};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> embedding_layer_norm_dropout(
    const Tensor& input_ids, const Tensor& position_ids, const Tensor& token_type_ids, const Tensor& word,
    const Tensor& position, const Tensor& type, const Tensor& gamma, const Tensor& beta, double eps, double p,
    int64_t /*seed*/, int64_t /*site*/, const OptionalTensor& /*keys*/) {
  const Tensor sum =
      at::embedding(word, input_ids) + at::embedding(position, position_ids) + at::embedding(type, token_type_ids);
  return {drop(normalise(sum, gamma, beta, eps), p), {}, {}, {}};
}

std::tuple<Tensor, Tensor> masked_softmax_dropout(const Tensor& scores, const Tensor& cu_seqlens, double scale,
                                                  double p, int64_t /*seed*/, int64_t /*site*/,
                                                  const OptionalTensor& /*keys*/) {
  const Tensor padding = real_columns(cu_seqlens, scores.size(3)).logical_not_().unsqueeze(1).unsqueeze(1);
  const Tensor masked = (scores * scale).masked_fill(padding, -std::numeric_limits<double>::infinity());
  return {drop(at::softmax(masked, 3), p), {}};
}

std::tuple<Tensor, Tensor, Tensor> attention(const Tensor& qkv, const Tensor& cu_seqlens, int64_t max_seqlen,
                                             int64_t num_heads, double p, int64_t seed, int64_t site,
                                             const OptionalTensor& keys) {
  const int64_t tokens = qkv.size(0), hidden = qkv.size(1) / 3, sequences = cu_seqlens.size(0) - 1;
  if (tokens == 0) return {qkv.narrow(1, 0, hidden), {}, {}};
  Tensor padded = qkv, slot;  // slot of every token in [B * S]
  if (tokens != sequences * max_seqlen) {
    slot = real_columns(cu_seqlens, max_seqlen).flatten().nonzero().squeeze(1);
    padded = at::zeros({sequences * max_seqlen, 3 * hidden}, qkv.options()).index_copy(0, slot, qkv);
  }
  const Tensor heads = padded.view({sequences, max_seqlen, 3, num_heads, hidden / num_heads}).permute({2, 0, 3, 1, 4});
  const Tensor probabilities = std::get<0>(
      dispatch::masked_softmax_dropout(at::matmul(heads[0], heads[1].transpose(2, 3)), cu_seqlens,
                                       1.0 / std::sqrt(static_cast<double>(hidden / num_heads)), p, seed, site, keys));
  const Tensor out = at::matmul(probabilities, heads[2]).transpose(1, 2).reshape({-1, hidden});
  return {slot.defined() ? out.index_select(0, slot) : out, {}, {}};
}

std::tuple<Tensor, Tensor> dropout(const Tensor& x, double p, int64_t /*seed*/, int64_t /*site*/,
                                   const OptionalTensor& /*keys*/) {
  return {drop(x, p), {}};
}

std::tuple<Tensor, Tensor> cross_entropy(const Tensor& logits, const Tensor& labels, int64_t num_classes,
                                         const OptionalTensor& /*counted*/) {
  const Tensor x = logits.narrow(1, 0, num_classes).to(at::kFloat);
  if (labels.numel() == 0) return {x.sum(), {}};
  return {at::cross_entropy_loss(x, labels), {}};
}

Tensor norm(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> norms;
  for (const Tensor& tensor : tensors) norms.push_back(at::norm(tensor, 2, at::kFloat));
  return at::stack(norms).norm().to(at::kDouble);
}

void unscale_(const std::vector<Tensor>& tensors, const Tensor& inv_scale, const Tensor& found_inf) {
  for (const Tensor& tensor : tensors) {
    found_inf.masked_fill_(tensor.isfinite().all().logical_not_(), 1.0);
    tensor.mul_(inv_scale);
  }
}

void step(UpdateRule rule, const std::vector<ops::OptimizerTensors>& groups, const std::vector<UpdateOptions>& options,
          const ops::StepTensors& scalars) {
  std::vector<Tensor> grads;
  for (const auto& group : groups) grads.insert(grads.end(), group.grads.begin(), group.grads.end());
  Tensor total = norm(grads);
  if (scalars.inv_scale.defined()) total = total * scalars.inv_scale;
  scalars.grad_norm.copy_(total);
  const bool skip =
      !std::isfinite(total.item<double>()) || (scalars.found_inf.defined() && scalars.found_inf.item<float>() != 0.0F);
  scalars.skipped.fill_(skip ? 1.0 : 0.0);
  if (skip) return;
  scalars.step.add_(1);
  const Tensor steps = scalars.step.to(at::kDouble), one = at::ones_like(steps);
  for (size_t g = 0; g < groups.size(); ++g) {
    const UpdateOptions& o = options[g];
    const Tensor lr = (scalars.lr.defined() ? scalars.lr : one * o.lr) * o.lr_scale;
    const Tensor correction1 = o.bias_correction ? 1.0 - at::pow(o.beta1, steps) : one;
    const Tensor correction2 = o.bias_correction ? 1.0 - at::pow(o.beta2, steps) : one;
    const Tensor inv_scale = scalars.inv_scale.defined() ? scalars.inv_scale : one;
    const auto clipped = [&](const Tensor& gradient_norm) {
      if (o.max_grad_norm <= 0.0) return inv_scale;
      return inv_scale * clip_ratio(o, gradient_norm).clamp_max_(1.0);
    };
    const Tensor multiplier = clipped(total);
    for (size_t i = 0; i < groups[g].params.size(); ++i) {
      const Tensor &param = groups[g].params[i], &exp_avg = groups[g].exp_avg[i], &exp_avg_sq = groups[g].exp_avg_sq[i];
      Tensor grad = groups[g].grads[i];
      grad = grad * (o.clip_per_tensor ? clipped(grad.norm() * inv_scale) : multiplier);
      if (!o.decoupled) grad.add_(param, o.weight_decay);
      exp_avg.mul_(o.beta1).add_(grad, o.beta3);
      exp_avg_sq.mul_(o.beta2).addcmul_(grad, grad, 1.0 - o.beta2);
      const Tensor corrected = exp_avg_sq / correction2;
      Tensor update = exp_avg / correction1, rate = lr;
      update.div_(corrected.sqrt().add_(o.eps));
      if (o.decoupled) update.add_(param, o.weight_decay);
      if (rule == UpdateRule::kLamb && o.trust_ratio) {
        const Tensor param_norm = param.norm(), update_norm = update.norm();
        const Tensor usable = param_norm.ne(0).logical_and_(update_norm.ne(0));
        Tensor ratio = (param_norm / update_norm);
        rate = rate * at::where(usable, ratio, at::ones_like(param_norm));
      }
      if (rule == UpdateRule::kStableAdamw) {
        const Tensor ratios = grad.square().div_(corrected.clamp_min(o.eps * o.eps));
        rate = rate / ratios.mean(at::kDouble).clamp_min_(1.0).sqrt_();
      }
      param.sub_(update.mul_(rate));
      if (const Tensor& ema = groups[g].ema[i]; ema.defined()) {
        ema.lerp_(param, steps.reciprocal().clamp_min_(1.0 - o.ema_decay).to(ema.scalar_type()));
      }
      if (groups[g].copies[i].defined()) groups[g].copies[i].copy_(param);
    }
  }
}

}  // namespace plain

namespace {

// Note [Plain operators]
// Production code does not know the plain expressions. They are kernels for a dispatch key that comes before autocast
// and autograd, and that LibTorch uses in its own tests only. A scope includes the key on its thread, so that calls of
// the operators come here first.
constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

/// The groups of this thread's scope, a bit each.
constinit thread_local uint32_t replaced = 0;

constexpr uint32_t bit(OpGroup group) { return uint32_t{1} << static_cast<uint32_t>(group); }
bool replaces(OpGroup group) { return (replaced & bit(group)) != 0; }

/// An operator's kernel for kKey.
template <const auto& op, auto expression, OpGroup group>
struct PlainKernel;
template <const auto& op, class Result, class... Arguments, Result (*expression)(Arguments...), OpGroup group>
struct PlainKernel<op, expression, group> {
  static Result call(c10::DispatchKeySet keys, Arguments... arguments) {
    if (replaces(group)) return expression(arguments...);
    constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, kKey);
    const c10::impl::ExcludeDispatchKeyGuard guard(kKey);
    return op.handle().redispatch(keys & kBelow, std::forward<Arguments>(arguments)...);
  }
};

/// The registrations, made when the first scope begins.
class Registrations {
 public:
  Registrations() {
    all_.fallback(torch::CppFunction::makeFallthrough());
    add<dispatch::linear, plain::linear, OpGroup::kLinear>();
    add<dispatch::qkv_linear, plain::qkv_linear, OpGroup::kLinear>();
    add<dispatch::padded_linear, plain::padded_linear, OpGroup::kLinear>();
    add<dispatch::bias_gelu, plain::bias_gelu, OpGroup::kGelu>();
    add<dispatch::layer_norm, plain::layer_norm, OpGroup::kLayerNorm>();
    add<dispatch::bias_dropout_residual_layer_norm, plain::bias_dropout_residual_layer_norm, OpGroup::kLayerNorm>();
    add<dispatch::embedding_layer_norm_dropout, plain::embedding_layer_norm_dropout, OpGroup::kLayerNorm>();
    add<dispatch::attention, plain::attention, OpGroup::kAttention>();
    add<dispatch::masked_softmax_dropout, plain::masked_softmax_dropout, OpGroup::kSoftmax>();
    add<dispatch::dropout, plain::dropout, OpGroup::kDropout>();
    add<dispatch::cross_entropy, plain::cross_entropy, OpGroup::kCrossEntropy>();
  }

 private:
  template <const auto& op, auto expression, OpGroup group>
  void add() {
    operators_.impl(op.name, PlainKernel<op, expression, group>::call);
  }

  torch::Library all_{torch::Library::IMPL, "_", kKey, __FILE__, __LINE__};
  torch::Library operators_{torch::Library::IMPL, "bert", kKey, __FILE__, __LINE__};
};

}  // namespace

PlainOperators::PlainOperators(const std::vector<OpGroup>& groups)
    : groups_before_(replaced), included_before_(c10::impl::tls_is_dispatch_key_included(kKey)) {
  static const Registrations registrations;
  replaced = 0;
  for (const OpGroup group : groups) replaced |= bit(group);
  c10::impl::tls_set_dispatch_key_included(kKey, replaced != 0);
}

PlainOperators::~PlainOperators() {
  replaced = groups_before_;
  c10::impl::tls_set_dispatch_key_included(kKey, included_before_);
}

}  // namespace bert
