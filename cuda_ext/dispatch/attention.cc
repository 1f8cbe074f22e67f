#include "cuda_ext/dispatch/attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "cuda_ext/dispatch/argument_checks.h"
#include "cuda_ext/dispatch/derivative.h"
#include "cuda_ext/dispatch/softmax.h"
#include "cuda_ext/ops.h"

namespace bert::composite {

namespace {

/// Packed sequences laid out for batched products. A slot without a token holds values of another token. Results of
/// such a slot are multiplied by the zeros of masked_softmax_dropout, or left out on the way back to tokens.
struct PaddedAttention {
  PaddedAttention(const Tensor& qkv, const Tensor& cu_seqlens, int64_t max_seqlen, int64_t num_heads)
      : sequences(cu_seqlens.size(0) - 1),
        slots((std::min(max_seqlen, qkv.size(0)) + kSlotMultiple - 1) / kSlotMultiple * kSlotMultiple),
        heads(num_heads),
        head_size(qkv.size(1) / 3 / num_heads),
        scale(1.0 / std::sqrt(static_cast<double>(head_size))),
        rows(tokens_of_slots(cu_seqlens, slots).flatten()) {
    const Tensor cu = cu_seqlens.to(at::kLong), token = at::arange(qkv.size(0), cu.options());
    const Tensor sequence = at::searchsorted(cu, token, /*out_int32=*/false, /*right=*/true) - 1;
    slot = sequence * slots + token - cu.index_select(0, sequence);
    const Tensor padded = qkv.index_select(0, rows).view({sequences, slots, 3, heads, head_size});
    query = padded.select(2, 0).transpose(1, 2) * scale;  // scaled here, because unscaled products overflow fp16
    key = padded.select(2, 1).transpose(1, 2);
    value = padded.select(2, 2).transpose(1, 2);
  }

  [[nodiscard]] Tensor scores() const { return at::matmul(query, key.transpose(2, 3)); }

  static constexpr int64_t kSlotMultiple = 8;  // rows of scores that the kernels read in vectors
  int64_t sequences, slots, heads, head_size;
  double scale;
  Tensor rows, slot;         // [B * S] token of each slot; [T] slot of each token
  Tensor query, key, value;  // [B, A, S, D]; query times scale
};

}  // namespace

std::tuple<Tensor, Tensor, Tensor> attention(const Tensor& qkv, const Tensor& cu_seqlens, int64_t max_seqlen,
                                             int64_t num_heads, double p, int64_t seed, int64_t site,
                                             const OptionalTensor& keys) {
  const Tensor rng_state = at::empty({0}, cu_seqlens.options().dtype(at::kLong));  // the mask is drawn from the keys
  if (qkv.size(0) == 0) {
    return {at::empty({0, qkv.size(1) / 3}, qkv.options()),
            at::empty({num_heads, 0}, qkv.options().dtype(accumulation_type(qkv))), rng_state};
  }
  const PaddedAttention a(qkv, cu_seqlens, max_seqlen, num_heads);
  const auto [probabilities, logsumexp] =
      dispatch::masked_softmax_dropout(a.scores(), cu_seqlens, 1.0, p, seed, site, keys);
  const Tensor out = at::matmul(probabilities, a.value).transpose(1, 2).flatten(2).flatten(0, 1);
  return {out.index_select(0, a.slot), logsumexp.transpose(0, 1).reshape({num_heads, -1}).index_select(1, a.slot),
          rng_state};
}

Tensor attention_backward(const Tensor& grad, const Tensor& qkv, const Tensor& /*out*/, const Tensor& /*logsumexp*/,
                          const Tensor& /*rng_state*/, const Tensor& cu_seqlens, int64_t max_seqlen, int64_t num_heads,
                          double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
  if (qkv.size(0) == 0) return at::empty_like(qkv);
  const PaddedAttention a(qkv, cu_seqlens, max_seqlen, num_heads);
  const Tensor dout = grad.index_select(0, a.rows).view({a.sequences, a.slots, a.heads, a.head_size}).transpose(1, 2);
  const Tensor scores = a.scores();
  auto [probabilities, logsumexp] = dispatch::masked_softmax_dropout(scores, cu_seqlens, 1.0, p, seed, site, keys);
  const Tensor dvalue = at::matmul(probabilities.transpose(2, 3), dout);
  probabilities = Tensor();  // the next product uses its memory
  const Tensor dscores = dispatch::masked_softmax_dropout_backward(at::matmul(dout, a.value.transpose(2, 3)), scores,
                                                                   logsumexp, cu_seqlens, 1.0, p, seed, site, keys);
  const Tensor dquery = at::matmul(dscores, a.key) * a.scale, dkey = at::matmul(dscores.transpose(2, 3), a.query);
  const Tensor all = at::stack({dquery, dkey, dvalue}, 2);  // [B, A, 3, S, D]
  return all.permute({0, 3, 2, 1, 4}).reshape({-1, qkv.size(1)}).index_select(0, a.slot);
}

}  // namespace bert::composite

namespace bert::checks {

namespace {

void check_sequences(const char* op, const Tensor& qkv, const Tensor& cu_seqlens, int64_t max_seqlen,
                     int64_t num_heads) {
  check(op, "qkv", qkv, {-1, -1}, qkv);
  const int64_t columns = qkv.size(1);
  TORCH_CHECK(columns > 0 && columns % 3 == 0 && num_heads > 0 && columns / 3 % num_heads == 0, op,
              ": qkv must be [T, 3 * num_heads * D] with D > 0, got ", qkv.sizes(), " for num_heads = ", num_heads);
  check_integers(op, "cu_seqlens", cu_seqlens, -1, at::kInt, qkv);
  TORCH_CHECK(cu_seqlens.size(0) > 0 && max_seqlen >= 0, op,
              ": cu_seqlens must be [B + 1] and max_seqlen not negative, got ", cu_seqlens.sizes(), " and ",
              max_seqlen);
  if (const int64_t end = check_lengths(op, cu_seqlens, max_seqlen); end >= 0) {
    TORCH_CHECK(end == qkv.size(0), op, ": cu_seqlens must go from 0 to the number of tokens, ", qkv.size(0),
                ", got 0 to ", end);
  }
}

}  // namespace

void attention(const Tensor& qkv, const Tensor& cu_seqlens, int64_t max_seqlen, int64_t num_heads, double p,
               int64_t /*seed*/, int64_t site, const OptionalTensor& keys) {
  constexpr auto kOp = "attention";
  check_sequences(kOp, qkv, cu_seqlens, max_seqlen, num_heads);
  check_keys(kOp, p, site, keys, qkv.size(0), qkv);
}

void attention_backward(const Tensor& grad, const Tensor& qkv, const Tensor& out, const Tensor& logsumexp,
                        const Tensor& rng_state, const Tensor& cu_seqlens, int64_t max_seqlen, int64_t num_heads,
                        double p, int64_t /*seed*/, int64_t site, const OptionalTensor& keys) {
  constexpr auto kOp = "attention_backward";
  check_sequences(kOp, qkv, cu_seqlens, max_seqlen, num_heads);
  const int64_t tokens = qkv.size(0), hidden = qkv.size(1) / 3;
  check(kOp, "grad", grad, {tokens, hidden}, qkv);
  check(kOp, "out", out, {tokens, hidden}, qkv);
  check_type(kOp, "out", out, qkv.scalar_type(), "as qkv is");
  if (qkv.is_cuda()) {  // the shapes depend on LibTorch's kernels (cuda/attention.cc)
    TORCH_CHECK(logsumexp.defined() && rng_state.defined(), kOp, ": logsumexp and rng_state must be those of forward, ",
                "got an undefined tensor");
  } else {
    check_statistic(kOp, "logsumexp", logsumexp, {num_heads, tokens}, qkv);
    check_integers(kOp, "rng_state", rng_state, 0, at::kLong, qkv);
  }
  check_keys(kOp, p, site, keys, tokens, qkv);
}

}  // namespace bert::checks

namespace bert::dispatch {
namespace {

struct Attention : Differentiable<Attention> {
  static variable_list forward(AutogradContext* ctx, const Tensor& qkv, const Tensor& cu_seqlens, int64_t max_seqlen,
                               int64_t num_heads, double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
    const Forward scope(ctx);
    auto [out, logsumexp, rng_state] = dispatch::attention(qkv, cu_seqlens, max_seqlen, num_heads, p, seed, site, keys);
    ctx->save_for_backward({qkv, out, logsumexp, rng_state, cu_seqlens, keys.value_or(Tensor())});
    ctx->mark_non_differentiable({logsumexp, rng_state});
    ctx->saved_data["max_seqlen"] = max_seqlen;
    ctx->saved_data["num_heads"] = num_heads;
    DropoutState{p, seed, site}.save(ctx);
    return {out, logsumexp, rng_state};
  }
  static variable_list gradients(AutogradContext* ctx, const Tensor& grad, const variable_list& saved) {
    const auto drop = DropoutState::load(ctx);
    const Tensor dqkv = dispatch::attention_backward(
        grad, saved[0], saved[1], saved[2], saved[3], saved[4], ctx->saved_data["max_seqlen"].toInt(),
        ctx->saved_data["num_heads"].toInt(), drop.p, drop.seed, drop.site, optional(saved[5]));
    return {dqkv, Tensor(), Tensor(), Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

std::tuple<Tensor, Tensor, Tensor> cast_attention(const Autocast& cast, const Tensor& qkv, const Tensor& cu_seqlens,
                                                  int64_t max_seqlen, int64_t num_heads, double p, int64_t seed,
                                                  int64_t site, const OptionalTensor& keys) {
  return dispatch::attention(cast.low(qkv), cu_seqlens, max_seqlen, num_heads, p, seed, site, keys);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(bert, m) {
  define<attention>(m,
                    "attention(Tensor qkv, Tensor cu_seqlens, int max_seqlen, int num_heads, float p, int seed, int "
                    "site, Tensor? keys) -> (Tensor out, Tensor logsumexp, Tensor rng_state)");
  define<attention_backward>(
      m,
      "attention_backward(Tensor grad, Tensor qkv, Tensor out, Tensor logsumexp, Tensor rng_state, Tensor cu_seqlens, "
      "int max_seqlen, int num_heads, float p, int seed, int site, Tensor? keys) -> Tensor");
  differentiate<attention, Attention>(m);
  autocast<attention, cast_attention>(m);
}

}  // namespace bert::dispatch

namespace bert::ops {

at::Tensor attention(const at::Tensor& qkv, const at::Tensor& cu_seqlens, int64_t max_seqlen, int64_t num_heads,
                     const Dropout& dropout) {
  return std::get<0>(dispatch::attention(qkv, cu_seqlens, max_seqlen, num_heads, dropout.p, dropout.seed, dropout.site,
                                         dispatch::optional(dropout.keys)));
}

}  // namespace bert::ops
