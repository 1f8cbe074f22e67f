#include "cuda_ext/composite.h"

#include <ATen/ATen.h>

#include <array>
#include <cmath>
#include <vector>

#include "cuda_ext/philox.h"

namespace bert::composite {
namespace {

constexpr int64_t kLow32 = 0xFFFFFFFF;

/// The dtype in which sums and statistics are kept.
at::ScalarType accumulation_type(const Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

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

/// Packed tokens as [B, S]: the row of token s of sequence b (clamped to a valid row where s is past its end), and
/// which are real.
struct Padding {
  Tensor rows, real;
};
Padding padding(const Tensor& cu_seqlens, int64_t max_seqlen, int64_t tokens) {
  const Tensor cu = cu_seqlens.to(at::kLong);
  const Tensor start = cu.narrow(0, 0, cu.size(0) - 1).unsqueeze(1), end = cu.narrow(0, 1, cu.size(0) - 1).unsqueeze(1);
  const Tensor rows = start + at::arange(max_seqlen, cu.options());
  return {rows.clamp_max(tokens - 1), rows < end};
}

}  // namespace

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

Tensor dropout(const Tensor& x, double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
  if (p == 0.0 || x.numel() == 0) return x.clone();
  const Tensor rows = x.reshape({x.size(0), -1});
  return (rows * dropout_scale(*keys, seed, site, rows.size(1), p, x.scalar_type())).view(x.sizes());
}

Tensor bias_gelu(const Tensor& x, const Tensor& bias, bool tanh) {
  return at::gelu(x.to(accumulation_type(x)) + bias, tanh ? "tanh" : "none").to(x.scalar_type());
}

std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  const auto type = accumulation_type(x);
  auto [y, mean, rstd] = at::native_layer_norm(x.to(type), {x.size(1)}, gamma.to(type), beta.to(type), eps);
  return {y.to(x.scalar_type()), mean.view(-1), rstd.view(-1)};
}

std::tuple<Tensor, Tensor, Tensor> bias_dropout_residual_layer_norm(const Tensor& x, const Tensor& bias,
                                                                    const Tensor& residual, const Tensor& gamma,
                                                                    const Tensor& beta, double eps, double p,
                                                                    int64_t seed, int64_t site,
                                                                    const OptionalTensor& keys) {
  const auto type = accumulation_type(x);
  Tensor sum = x.to(type) + bias.to(type);
  sum = dropout(sum, p, seed, site, keys) + residual.to(type);
  auto [y, mean, rstd] = layer_norm(sum, gamma, beta, eps);
  return {y.to(x.scalar_type()), mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor> embedding_layer_norm_dropout(const Tensor& input_ids, const Tensor& position_ids,
                                                                const Tensor& token_type_ids, const Tensor& word,
                                                                const Tensor& position, const Tensor& type,
                                                                const Tensor& gamma, const Tensor& beta, double eps,
                                                                double p, int64_t seed, int64_t site,
                                                                const OptionalTensor& keys) {
  const Tensor sum =
      at::embedding(word, input_ids) + at::embedding(position, position_ids) + at::embedding(type, token_type_ids);
  auto [y, mean, rstd] = layer_norm(sum, gamma, beta, eps);
  return {dropout(y, p, seed, site, keys), mean, rstd};
}

std::tuple<Tensor, Tensor> attention(const Tensor& qkv, const Tensor& cu_seqlens, int64_t max_seqlen, int64_t num_heads,
                                     double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
  const auto type = accumulation_type(qkv);
  const int64_t tokens = qkv.size(0), hidden = qkv.size(1) / 3, head_size = hidden / num_heads;
  const int64_t sequences = cu_seqlens.size(0) - 1;
  if (tokens == 0) return {at::zeros({0, hidden}, qkv.options()), at::zeros({num_heads, 0}, qkv.options().dtype(type))};
  const auto [rows, real] = padding(cu_seqlens, max_seqlen, tokens);
  // [B, S, 3, A, D] -> three of [B, A, S, D]
  const Tensor padded =
      qkv.to(type).index_select(0, rows.flatten()).view({sequences, max_seqlen, 3, num_heads, head_size});
  const auto part = [&](int64_t i) { return padded.select(2, i).transpose(1, 2); };
  const Tensor scores = at::matmul(part(0), part(1).transpose(2, 3)) / std::sqrt(static_cast<double>(head_size));
  const Tensor masked = scores.masked_fill(real.logical_not().view({sequences, 1, 1, max_seqlen}), -INFINITY);
  const Tensor logsumexp = at::logsumexp(masked, {3});
  Tensor probabilities = at::softmax(masked, 3);
  if (p > 0.0) {
    const Tensor query_keys = keys->index_select(0, rows.flatten());
    std::vector<Tensor> heads;
    for (int64_t head = 0; head < num_heads; ++head) {
      heads.push_back(
          dropout_scale(query_keys, seed, site + head, max_seqlen, p, type).view({sequences, max_seqlen, max_seqlen}));
    }
    probabilities = probabilities * at::stack(heads, 1);
  }
  const Tensor out = at::matmul(probabilities, part(2)).transpose(1, 2).reshape({sequences * max_seqlen, hidden});
  // Token t is row sequence * S + position: the real entries in order.
  const Tensor token = at::arange(tokens, rows.options());
  const Tensor sequence = at::searchsorted(cu_seqlens.to(at::kLong), token, /*out_int32=*/false, /*right=*/true) - 1;
  const Tensor slot = sequence * max_seqlen + token - cu_seqlens.to(at::kLong).index_select(0, sequence);
  return {out.index_select(0, slot).to(qkv.scalar_type()),
          logsumexp.transpose(0, 1).reshape({num_heads, -1}).index_select(1, slot)};
}

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, int64_t num_classes) {
  const auto type = accumulation_type(logits);
  if (labels.numel() == 0) return logits.to(type).sum();
  return at::cross_entropy_loss(logits.narrow(1, 0, num_classes).to(type), labels);
}

}  // namespace bert::composite
