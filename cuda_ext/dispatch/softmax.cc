#include "cuda_ext/dispatch/softmax.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "cuda_ext/dispatch/argument_checks.h"
#include "cuda_ext/dispatch/derivative.h"
#include "cuda_ext/dispatch/dropout.h"
#include "cuda_ext/ops.h"

namespace bert::composite {

namespace {

/// True for scores between two tokens of a sequence, [B, 1, S, S2].
Tensor real_scores(const Tensor& scores, const Tensor& cu_seqlens) {
  const Tensor lengths = at::diff(cu_seqlens).view({-1, 1, 1, 1});
  const Tensor queries = at::arange(scores.size(2), cu_seqlens.options()).view({-1, 1}),
               columns = at::arange(scores.size(3), cu_seqlens.options());
  return queries.lt(lengths).logical_and(columns.lt(lengths));
}

/// The dropout factors of attention's probabilities, 0 or 1 / (1 - p), [B, A, S, S2], or [1]; any value in the padding.
Tensor probability_mask(const Tensor& scores, const Tensor& cu_seqlens, double p, int64_t seed, int64_t site,
                        const OptionalTensor& keys, at::ScalarType dtype) {
  if (p == 0.0 || keys->size(0) == 0) return at::ones({1}, scores.options().dtype(dtype));
  const Tensor rows = tokens_of_slots(cu_seqlens, scores.size(2));
  const Tensor query_keys = keys->index_select(0, rows.flatten());
  std::vector<Tensor> heads;
  for (int64_t head = 0; head < scores.size(1); ++head) {
    heads.push_back(dropout_scale(query_keys, seed, site + head, scores.size(3), p, dtype)
                        .view({scores.size(0), scores.size(2), scores.size(3)}));
  }
  return at::stack(heads, 1);
}

}  // namespace

Tensor tokens_of_slots(const Tensor& cu_seqlens, int64_t slots) {
  const Tensor cu = cu_seqlens.to(at::kLong).unsqueeze(1);
  const int64_t sequences = cu.size(0) - 1;
  return at::minimum(cu.narrow(0, 0, sequences) + at::arange(slots, cu.options()), cu.narrow(0, 1, sequences) - 1)
      .clamp_min_(0);
}

std::tuple<Tensor, Tensor> masked_softmax_dropout(const Tensor& scores, const Tensor& cu_seqlens, double scale,
                                                  double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
  const auto type = accumulation_type(scores);
  const Tensor real = real_scores(scores, cu_seqlens), zero = at::scalar_tensor(0, scores.options().dtype(type));
  const Tensor x = (scores.to(type) * scale).masked_fill(real.logical_not(), -std::numeric_limits<double>::infinity());
  const Tensor logsumexp = at::logsumexp(x, {3});
  const Tensor probabilities = at::where(real, at::exp(x - logsumexp.unsqueeze(3)), zero);
  const Tensor y = probabilities * probability_mask(scores, cu_seqlens, p, seed, site, keys, type);
  return {y.to(scores.scalar_type()), logsumexp};
}

Tensor masked_softmax_dropout_backward(const Tensor& grad, const Tensor& scores, const Tensor& logsumexp,
                                       const Tensor& cu_seqlens, double scale, double p, int64_t seed, int64_t site,
                                       const OptionalTensor& keys) {
  const auto type = accumulation_type(scores);
  const Tensor real = real_scores(scores, cu_seqlens), zero = at::scalar_tensor(0, scores.options().dtype(type));
  const Tensor probabilities = at::where(real, at::exp(scores.to(type) * scale - logsumexp.unsqueeze(3)), zero);
  const Tensor kept =
      at::where(real, grad.to(type) * probability_mask(scores, cu_seqlens, p, seed, site, keys, type), zero);
  const Tensor delta = (probabilities * kept).sum(3, /*keepdim=*/true);
  return (probabilities * at::where(real, kept - delta, zero) * scale).to(scores.scalar_type());
}

}  // namespace bert::composite

namespace bert::checks {

namespace {

void check_scores(const char* op, const Tensor& scores, const Tensor& cu_seqlens, double p, int64_t site,
                  const OptionalTensor& keys) {
  check(op, "scores", scores, {-1, -1, -1, -1}, scores);
  check_integers(op, "cu_seqlens", cu_seqlens, scores.size(0) + 1, at::kInt, scores);
  const int64_t tokens = check_lengths(op, cu_seqlens, std::min(scores.size(2), scores.size(3)));
  check_keys(op, p, site, keys, tokens, scores);
}

}  // namespace

void masked_softmax_dropout(const Tensor& scores, const Tensor& cu_seqlens, double /*scale*/, double p,
                            int64_t /*seed*/, int64_t site, const OptionalTensor& keys) {
  check_scores("masked_softmax_dropout", scores, cu_seqlens, p, site, keys);
}

void masked_softmax_dropout_backward(const Tensor& grad, const Tensor& scores, const Tensor& logsumexp,
                                     const Tensor& cu_seqlens, double /*scale*/, double p, int64_t /*seed*/,
                                     int64_t site, const OptionalTensor& keys) {
  constexpr auto kOp = "masked_softmax_dropout_backward";
  check_scores(kOp, scores, cu_seqlens, p, site, keys);
  check(kOp, "grad", grad, scores.sizes(), scores);
  check_statistic(kOp, "logsumexp", logsumexp, scores.sizes().slice(0, 3), scores);
}

}  // namespace bert::checks

namespace bert::dispatch {
namespace {

struct MaskedSoftmaxDropout : Differentiable<MaskedSoftmaxDropout> {
  static variable_list forward(AutogradContext* ctx, const Tensor& scores, const Tensor& cu_seqlens, double scale,
                               double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
    const Forward scope(ctx);
    auto [y, logsumexp] = dispatch::masked_softmax_dropout(scores, cu_seqlens, scale, p, seed, site, keys);
    ctx->save_for_backward({scores, logsumexp, cu_seqlens, keys.value_or(Tensor())});
    ctx->mark_non_differentiable({logsumexp});
    ctx->saved_data["scale"] = scale;
    DropoutState{p, seed, site}.save(ctx);
    return {y, logsumexp};
  }
  static variable_list gradients(AutogradContext* ctx, const Tensor& grad, const variable_list& saved) {
    const auto drop = DropoutState::load(ctx);
    const Tensor dscores = dispatch::masked_softmax_dropout_backward(grad, saved[0], saved[1], saved[2],
                                                                     ctx->saved_data["scale"].toDouble(), drop.p,
                                                                     drop.seed, drop.site, optional(saved[3]));
    return {dscores, Tensor(), Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(bert, m) {
  define<masked_softmax_dropout>(m,
                                 "masked_softmax_dropout(Tensor scores, Tensor cu_seqlens, float scale, float p, int "
                                 "seed, int site, Tensor? keys) -> (Tensor y, Tensor logsumexp)");
  define<masked_softmax_dropout_backward>(
      m,
      "masked_softmax_dropout_backward(Tensor grad, Tensor scores, Tensor logsumexp, Tensor cu_seqlens, float scale, "
      "float p, int seed, int site, Tensor? keys) -> Tensor");
  differentiate<masked_softmax_dropout, MaskedSoftmaxDropout>(m);
  autocast_ignores<masked_softmax_dropout>(m);
}

}  // namespace bert::dispatch

namespace bert::ops {

at::Tensor masked_softmax_dropout(const at::Tensor& scores, const at::Tensor& cu_seqlens, double scale,
                                  const Dropout& dropout) {
  return std::get<0>(dispatch::masked_softmax_dropout(scores, cu_seqlens, scale, dropout.p, dropout.seed, dropout.site,
                                                      dispatch::optional(dropout.keys)));
}

}  // namespace bert::ops
