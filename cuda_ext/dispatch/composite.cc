#include "cuda_ext/dispatch/composite.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cuda_ext/dispatch/checks.h"
#include "cuda_ext/dispatch/dispatch.h"
#include "cuda_ext/scalar/philox.h"

namespace bert::composite {
namespace {

constexpr int64_t kLow32 = 0xFFFFFFFF;

/// 0 where dropped, 1 / (1 - p) where kept.
Tensor dropout_scale(const Tensor& keys, int64_t seed, int64_t site, int64_t columns, double p, at::ScalarType dtype) {
  return dropout_mask(keys, seed, site, columns, p).to(dtype).mul_(1.0 / (1.0 - p));
}

Tensor high_word(const Tensor& x) { return at::bitwise_and(at::bitwise_right_shift(x, 32), kLow32); }
Tensor low_word(const Tensor& x) { return at::bitwise_and(x, kLow32); }

using Words = std::array<Tensor, 4>;

/// Philox4x32-10 on int64 tensors that hold 32-bit words; products wrap as uint64 would.
Words philox(uint32_t key0, uint32_t key1, Words c) {
  constexpr int64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const Tensor p0 = c[0] * kMultiplier0, p1 = c[2] * kMultiplier1;
    const Tensor next0 = high_word(p1).bitwise_xor_(c[1]).bitwise_xor_(static_cast<int64_t>(key0));
    const Tensor next2 = high_word(p0).bitwise_xor_(c[3]).bitwise_xor_(static_cast<int64_t>(key1));
    c = Words{next0, low_word(p1), next2, low_word(p0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return c;
}

/// x * the dropout mask, in x's dtype.
Tensor masked(const Tensor& x, double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
  return p == 0.0 ? x : x * dropout_scale(*keys, seed, site, x.size(1), p, x.scalar_type());
}

/// The token of each slot of padded sequences, [B, S]; the sequence's last where it has no more, so that what is not
/// finite stays in its sequence, and any token in a sequence without.
Tensor tokens_of_slots(const Tensor& cu_seqlens, int64_t slots) {
  const Tensor cu = cu_seqlens.to(at::kLong).unsqueeze(1);
  const int64_t sequences = cu.size(0) - 1;
  return at::minimum(cu.narrow(0, 0, sequences) + at::arange(slots, cu.options()), cu.narrow(0, 1, sequences) - 1)
      .clamp_min_(0);
}

/// Which scores are between two tokens of a sequence, [B, 1, S, S2].
Tensor real_scores(const Tensor& scores, const Tensor& cu_seqlens) {
  const Tensor lengths = at::diff(cu_seqlens).view({-1, 1, 1, 1});
  const Tensor queries = at::arange(scores.size(2), cu_seqlens.options()).view({-1, 1}),
               columns = at::arange(scores.size(3), cu_seqlens.options());
  return queries.lt(lengths).logical_and(columns.lt(lengths));
}

/// The dropout of attention's probabilities, 0 or 1 / (1 - p), [B, A, S, S2], or [1]; anything in the padding.
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

/// [M] of x's dtype: 0, and NaN where the label is not in [0, num_classes).
Tensor nan_outside(const Tensor& labels, int64_t num_classes, const Tensor& x) {
  const Tensor outside = labels.lt(0).logical_or_(labels.ge(num_classes));
  return at::zeros(labels.sizes(), x.options()).masked_fill_(outside, std::numeric_limits<double>::quiet_NaN());
}

const char* gelu_form(bool tanh) { return tanh ? "tanh" : "none"; }

Tensor embedding_sum(const Tensor& input_ids, const Tensor& position_ids, const Tensor& token_type_ids,
                     const Tensor& word, const Tensor& position, const Tensor& type) {
  const auto accumulate = accumulation_type(word);
  return at::embedding(word, input_ids).to(accumulate) + at::embedding(position, position_ids).to(accumulate) +
         at::embedding(type, token_type_ids).to(accumulate);
}

/// Packed sequences laid out for batched products. A slot without a token holds another's values: whatever is computed
/// of it is multiplied by the zeros of masked_softmax_dropout, or left behind on the way back to tokens.
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
    query = padded.select(2, 0).transpose(1, 2) * scale;  // here, as unscaled products overflow fp16
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

at::ScalarType accumulation_type(const Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

Tensor dropout_mask(const Tensor& keys, int64_t seed, int64_t site, int64_t columns, double p) {
  const int64_t tokens = keys.size(0), blocks = (columns + 3) / 4;
  const Tensor block = at::arange(blocks, keys.options());
  const Tensor zero = at::zeros({tokens, blocks}, keys.options());
  const Words words =
      philox(static_cast<uint32_t>(seed), static_cast<uint32_t>(static_cast<uint64_t>(seed) >> 32),
             Words{zero + low_word(keys).unsqueeze(1), zero + high_word(keys).unsqueeze(1), zero + site, zero + block});
  const Tensor word = at::stack({words[0], words[1], words[2], words[3]}, 2).view({tokens, 4 * blocks});
  return word.narrow(1, 0, columns) >= static_cast<int64_t>(dropout_threshold(p));
}

Tensor nothing_kept(const Tensor& like) { return at::empty({0}, like.options().dtype(at::kByte)); }

std::tuple<Tensor, Tensor> dropout(const Tensor& x, double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
  return {dropout_backward(x, p, seed, site, keys, {}), nothing_kept(x)};
}

Tensor dropout_backward(const Tensor& grad, double p, int64_t seed, int64_t site, const OptionalTensor& keys,
                        const Tensor& /*kept*/) {
  if (p == 0.0 || grad.numel() == 0) return grad.clone();
  const Tensor rows = grad.reshape({grad.size(0), -1});
  return (rows * dropout_scale(*keys, seed, site, rows.size(1), p, grad.scalar_type())).view(grad.sizes());
}

Tensor bias_gelu(const Tensor& x, const Tensor& bias, bool tanh) {
  const auto type = accumulation_type(x);
  return at::gelu(x.to(type) + bias.to(type), gelu_form(tanh)).to(x.scalar_type());
}

std::tuple<Tensor, Tensor> bias_gelu_backward(const Tensor& grad, const Tensor& x, const Tensor& bias, bool tanh) {
  const auto type = accumulation_type(x);
  const Tensor dx = at::gelu_backward(grad.to(type), x.to(type) + bias.to(type), gelu_form(tanh));
  return {dx.to(x.scalar_type()), dx.sum(0).to(bias.scalar_type())};
}

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

std::tuple<Tensor, Tensor, Tensor, Tensor> embedding_layer_norm_dropout(
    const Tensor& input_ids, const Tensor& position_ids, const Tensor& token_type_ids, const Tensor& word,
    const Tensor& position, const Tensor& type, const Tensor& gamma, const Tensor& beta, double eps, double p,
    int64_t seed, int64_t site, const OptionalTensor& keys) {
  const Tensor sum = embedding_sum(input_ids, position_ids, token_type_ids, word, position, type);
  auto [y, mean, rstd] = layer_norm(sum, gamma, beta, eps);
  return {masked(y, p, seed, site, keys).to(word.scalar_type()), mean, rstd, nothing_kept(word)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> embedding_layer_norm_dropout_backward(
    const Tensor& grad, const Tensor& input_ids, const Tensor& position_ids, const Tensor& token_type_ids,
    const Tensor& word, const Tensor& position, const Tensor& type, const Tensor& mean, const Tensor& rstd,
    const Tensor& gamma, double p, int64_t seed, int64_t site, const OptionalTensor& keys, const Tensor& /*kept*/) {
  const Tensor sum = embedding_sum(input_ids, position_ids, token_type_ids, word, position, type);
  auto [dsum, dgamma, dbeta] =
      layer_norm_backward(masked(grad.to(sum.scalar_type()), p, seed, site, keys), sum, mean, rstd, gamma);
  const auto scatter = [&dsum = dsum](const Tensor& ids, const Tensor& table) {
    return at::embedding_dense_backward(dsum, ids, table.size(0), /*padding_idx=*/-1, false).to(table.scalar_type());
  };
  return {scatter(input_ids, word), scatter(position_ids, position), scatter(token_type_ids, type), dgamma, dbeta};
}

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
  probabilities = Tensor();  // its memory is the next product's
  const Tensor dscores = dispatch::masked_softmax_dropout_backward(at::matmul(dout, a.value.transpose(2, 3)), scores,
                                                                   logsumexp, cu_seqlens, 1.0, p, seed, site, keys);
  const Tensor dquery = at::matmul(dscores, a.key) * a.scale, dkey = at::matmul(dscores.transpose(2, 3), a.query);
  const Tensor all = at::stack({dquery, dkey, dvalue}, 2);  // [B, A, 3, S, D]
  return all.permute({0, 3, 2, 1, 4}).reshape({-1, qkv.size(1)}).index_select(0, a.slot);
}

std::tuple<Tensor, Tensor> masked_softmax_dropout(const Tensor& scores, const Tensor& cu_seqlens, double scale,
                                                  double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
  const auto type = accumulation_type(scores);
  const Tensor real = real_scores(scores, cu_seqlens), zero = at::zeros({}, scores.options().dtype(type));
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
  const Tensor real = real_scores(scores, cu_seqlens), zero = at::zeros({}, scores.options().dtype(type));
  const Tensor probabilities = at::where(real, at::exp(scores.to(type) * scale - logsumexp.unsqueeze(3)), zero);
  const Tensor kept =
      at::where(real, grad.to(type) * probability_mask(scores, cu_seqlens, p, seed, site, keys, type), zero);
  const Tensor delta = (probabilities * kept).sum(3, /*keepdim=*/true);
  return (probabilities * at::where(real, kept - delta, zero) * scale).to(scores.scalar_type());
}

std::tuple<Tensor, Tensor> cross_entropy(const Tensor& logits, const Tensor& labels, int64_t num_classes) {
  const Tensor x = logits.narrow(1, 0, num_classes).to(accumulation_type(logits));
  if (labels.numel() == 0) return {at::zeros({}, x.options()), at::empty({0}, x.options())};
  const Tensor logsumexp = at::logsumexp(x, {1});
  const Tensor chosen = x.gather(1, labels.clamp(0, num_classes - 1).unsqueeze(1)).squeeze(1);
  return {(logsumexp - chosen + nan_outside(labels, num_classes, x)).mean(), logsumexp};
}

Tensor& cross_entropy_backward_(Tensor& logits, const Tensor& grad, const Tensor& labels, const Tensor& logsumexp,
                                int64_t num_classes) {
  if (labels.numel() == 0) return logits;
  const Tensor x = logits.narrow(1, 0, num_classes).to(logsumexp.scalar_type());
  Tensor dx = at::exp(x - (logsumexp + nan_outside(labels, num_classes, x)).unsqueeze(1));
  // Not scatter_add_: LibTorch has no deterministic one on CUDA.
  dx -= labels.unsqueeze(1).eq(at::arange(num_classes, labels.options())).to(dx.scalar_type());
  logits.zero_();
  logits.narrow(1, 0, num_classes).copy_(dx * (grad / static_cast<double>(labels.size(0))));
  return logits;
}

Tensor linear(const Tensor& x, const Tensor& weight, const OptionalTensor& bias) {
  checks::linear_dtypes(x, weight, bias);
  return at::linear(x, weight, bias);
}

std::tuple<Tensor, Tensor, Tensor> linear_backward(const Tensor& grad, const Tensor& x, const Tensor& weight,
                                                   std::array<bool, 3> needed) {
  return {needed[0] ? at::mm(grad, weight) : Tensor(), needed[1] ? at::mm(grad.t(), x) : Tensor(),
          needed[2] ? at::sum(grad, {0}, false, accumulation_type(grad)).to(grad.scalar_type()) : Tensor()};
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

Tensor qkv_linear(const Tensor& x, const Tensor& query_weight, const Tensor& key_weight, const Tensor& value_weight,
                  const Tensor& query_bias, const Tensor& key_bias, const Tensor& value_bias) {
  return dispatch::linear(x, join(query_weight, key_weight, value_weight).to(x.scalar_type()),
                          join(query_bias, key_bias, value_bias).to(x.scalar_type()));
}

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

Tensor padded_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t columns) {
  return dispatch::linear(x, padded_rows(weight, columns, x.scalar_type()),
                          padded_rows(bias, columns, x.scalar_type()));
}

}  // namespace bert::composite
