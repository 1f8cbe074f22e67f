#include "cuda_ext/attention.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "cuda_ext/composite.h"

namespace bert::cuda {
namespace {

using at::Tensor;
using composite::OptionalTensor;

// Note [Attention backends]
// fp16 and bf16: flash attention, for head sizes up to 192; above, its backward exists on data-centre chips only. fp32,
// and larger heads: the memory-efficient kernels, whose fp32 products are three TF32 products each. Both read the three
// parts of qkv where they lie, and take cu_seqlens instead of a mask. Head sizes must be whole 16-byte vectors; others
// (TinyBERT's 26) are padded with zeros, at the cost of a copy. What neither takes (double, more sequences than a grid
// has rows) is composed of ATen operators.
// cuDNN is left out: LibTorch 2.11's own variable-length attention (torch.nn.attention.varlen) never chooses it, its
// variable-length kernels need cuDNN 9.24 for sequences of up to 128 tokens, and its backward cannot be made
// deterministic.
// Note [Deterministic attention]
// Both backwards add up dq in an order that differs from run to run, unless deterministic algorithms are on; the
// trainer switches them on (app/determinism.h). Then flash keeps ceil(multiprocessors / (sequences * heads)) copies of
// dq in fp32, which is one copy, as before, from 132 / 16 = 9 sequences of BERT-large on an H200; and the
// memory-efficient backward does not split the keys, which leaves the chip idle only when there are few sequences. Note
// [Random numbers of attention dropout on CUDA] These kernels drop by a generator of their own, LibTorch's for the
// device, not by keys. Its state is set from the number of the micro-batch's first sample before every forward
// (app/training_step.cc), so a resumed run drops the same.
constexpr int64_t kFlashMaxHeadSize = 192;
constexpr int64_t kVectorBytes = 16;
constexpr int64_t kMaxSequences = 65535;  // the second and third dimension of a CUDA grid

/// custom_mask_type of the memory-efficient kernels: none.
constexpr int64_t kNoMask = 0;

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

/// One call's geometry, and its arguments in the shapes that LibTorch's kernels take.
struct Packed {
  Packed(const Tensor& qkv, const Tensor& cu_seqlens, int64_t longest, int64_t num_heads)
      : tokens(qkv.size(0)),
        heads(num_heads),
        head_size(qkv.size(1) / 3 / num_heads),
        max_seqlen(std::min(longest, tokens)),
        scale(1.0 / std::sqrt(static_cast<double>(head_size))),
        choice(choose_attention(qkv.scalar_type(), head_size, cu_seqlens.size(0) - 1)) {
    if (tokens == 0) choice.backend = AttentionBackend::kComposite;
    if (choice.backend == AttentionBackend::kComposite) return;
    TORCH_CHECK(longest > 0, "attention: max_seqlen must be the longest of the ", cu_seqlens.size(0) - 1,
                " sequences, got ", longest);
    const Tensor parts = padded(qkv.view({tokens, 3, heads, head_size}));
    query = parts.select(1, 0);
    key = parts.select(1, 1);
    value = parts.select(1, 2);
  }

  /// [..., D] with zeros up to the head size that the kernels are given.
  [[nodiscard]] Tensor padded(const Tensor& x) const {
    return choice.head_size == head_size ? x : at::constant_pad_nd(x, {0, choice.head_size - head_size});
  }
  /// [T, H] -> [T, A, D].
  [[nodiscard]] Tensor by_head(const Tensor& x) const { return padded(x.view({tokens, heads, head_size})); }
  /// [T, ..., D] -> [T, ... * D] without the padding.
  [[nodiscard]] Tensor joined(const Tensor& x) const {
    return x.narrow(-1, 0, head_size).reshape({tokens, -1}).contiguous();
  }

  int64_t tokens, heads, head_size, max_seqlen;
  double scale;
  AttentionChoice choice;
  Tensor query, key, value;  // [T, A, D]
};

std::tuple<Tensor, Tensor, Tensor> flash(const Packed& a, const Tensor& cu_seqlens, double p) {
  auto [out, logsumexp, rng_state, unused, debug_mask] =
      at::_flash_attention_forward(a.query, a.key, a.value, cu_seqlens, cu_seqlens, a.max_seqlen, a.max_seqlen, p,
                                   /*is_causal=*/false, /*return_debug_mask=*/false, a.scale);
  return {a.joined(out), logsumexp, rng_state};
}

Tensor flash_backward(const Packed& a, const Tensor& grad, const Tensor& out, const Tensor& logsumexp,
                      const Tensor& rng_state, const Tensor& cu_seqlens, double p) {
  const auto [dquery, dkey, dvalue] = at::_flash_attention_backward(
      a.by_head(grad), a.query, a.key, a.value, a.by_head(out), logsumexp, cu_seqlens, cu_seqlens, a.max_seqlen,
      a.max_seqlen, p, /*is_causal=*/false, rng_state, /*unused=*/at::empty({0}, rng_state.options()), a.scale);
  return a.joined(at::stack({dquery, dkey, dvalue}, 1));
}

std::tuple<Tensor, Tensor, Tensor> efficient(const Packed& a, const Tensor& cu_seqlens, double p) {
  auto [out, logsumexp, seed, offset, max_q, max_k] = at::_efficient_attention_forward(
      a.query.unsqueeze(0), a.key.unsqueeze(0), a.value.unsqueeze(0), /*bias=*/std::nullopt, cu_seqlens, cu_seqlens,
      a.max_seqlen, a.max_seqlen, p, kNoMask, /*compute_log_sumexp=*/true, a.scale);
  const Tensor rng_state = p > 0.0 ? at::stack({seed, offset}) : at::zeros({2}, at::kLong);
  return {a.joined(out.squeeze(0)), logsumexp, rng_state};
}

Tensor efficient_backward(const Packed& a, const Tensor& grad, const Tensor& out, const Tensor& logsumexp,
                          const Tensor& rng_state, const Tensor& cu_seqlens, double p) {
  const auto [dquery, dkey, dvalue, dbias] = at::_efficient_attention_backward(
      a.by_head(grad).unsqueeze(0), a.query.unsqueeze(0), a.key.unsqueeze(0), a.value.unsqueeze(0),
      /*bias=*/std::nullopt, a.by_head(out).unsqueeze(0), cu_seqlens, cu_seqlens, a.max_seqlen, a.max_seqlen, logsumexp,
      p, rng_state.select(0, 0), rng_state.select(0, 1), kNoMask, /*bias_requires_grad=*/false, a.scale,
      /*num_splits_key=*/std::nullopt, /*window_size=*/std::nullopt, /*shared_storage_dqdkdv=*/true);
  // The three are views of one [1, T, 3, A, D].
  const int64_t row = a.heads * a.choice.head_size;
  TORCH_INTERNAL_ASSERT(dvalue.is_alias_of(dquery) && dvalue.storage_offset() == dquery.storage_offset() + 2 * row);
  return a.joined(dquery.as_strided({a.tokens, 3, a.heads, a.choice.head_size}, {3 * row, row, a.choice.head_size, 1}));
}

}  // namespace

AttentionChoice choose_attention(c10::ScalarType dtype, int64_t head_size, int64_t sequences) {
  const bool low = dtype == at::kHalf || dtype == at::kBFloat16;
  if ((!low && dtype != at::kFloat) || sequences > kMaxSequences) return {AttentionBackend::kComposite, head_size};
  const int64_t padded = round_up(head_size, kVectorBytes / static_cast<int64_t>(c10::elementSize(dtype)));
  return {low && padded <= kFlashMaxHeadSize ? AttentionBackend::kFlash : AttentionBackend::kEfficient, padded};
}

std::tuple<Tensor, Tensor, Tensor> attention(const Tensor& qkv, const Tensor& cu_seqlens, int64_t max_seqlen,
                                             int64_t num_heads, double p, int64_t seed, int64_t site,
                                             const OptionalTensor& keys) {
  const Packed a(qkv, cu_seqlens, max_seqlen, num_heads);
  switch (a.choice.backend) {
    case AttentionBackend::kFlash:
      return flash(a, cu_seqlens, p);
    case AttentionBackend::kEfficient:
      return efficient(a, cu_seqlens, p);
    case AttentionBackend::kComposite:
      break;
  }
  return composite::attention(qkv, cu_seqlens, max_seqlen, num_heads, p, seed, site, keys);
}

Tensor attention_backward(const Tensor& grad, const Tensor& qkv, const Tensor& out, const Tensor& logsumexp,
                          const Tensor& rng_state, const Tensor& cu_seqlens, int64_t max_seqlen, int64_t num_heads,
                          double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
  const Packed a(qkv, cu_seqlens, max_seqlen, num_heads);
  switch (a.choice.backend) {
    case AttentionBackend::kFlash:
      return flash_backward(a, grad, out, logsumexp, rng_state, cu_seqlens, p);
    case AttentionBackend::kEfficient:
      return efficient_backward(a, grad, out, logsumexp, rng_state, cu_seqlens, p);
    case AttentionBackend::kComposite:
      break;
  }
  return composite::attention_backward(grad, qkv, out, logsumexp, rng_state, cu_seqlens, max_seqlen, num_heads, p, seed,
                                       site, keys);
}

}  // namespace bert::cuda

TORCH_LIBRARY_IMPL(bert, CUDA, m) {
  m.impl("attention", bert::cuda::attention);
  m.impl("attention_backward", bert::cuda::attention_backward);
}
