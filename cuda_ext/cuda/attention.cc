#include "cuda_ext/cuda/attention.h"

#include <ATen/ATen.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "cuda_ext/compat.h"
#include "cuda_ext/dispatch/attention.h"

namespace bert::cuda {
namespace {

using at::Tensor;
using composite::OptionalTensor;

// Note [Attention backends]
// cuDNN runs fp16 and bf16 if all of these hold:
// - All sequences are as long as the longest, the length is a multiple of 64, and there is more than one sequence.
//   LibTorch builds a plan for every shape that is new to a thread and keeps it forever, and texts that are read one at
//   a time have hundreds of lengths.
// - The device is one where LibTorch itself prefers cuDNN (compute capability 9.0 and 10.0, cuDNN after 9.15), and the
//   head size is at most 128, as there.
// - Algorithms need not be deterministic; cuDNN's backward cannot be.
// - The dropout probability is a multiple of 1/16. The kernels have no finer steps: 0.1 would drop a sixteenth, and
//   LibTorch 2.11 does not check this.
// cuDNN gets [B, A, S, D] views of qkv and no mask. Its kernels for unequal lengths are not used: LibTorch 2.11's
// variable-length attention (torch.nn.attention.varlen) never chooses them, and they need cuDNN 9.24 for sequences of
// up to 128 tokens.
// Otherwise flash attention runs fp16 and bf16 with head sizes up to 192; above, its backward exists on data-centre
// chips only. The memory-efficient kernels run fp32 (each product as three TF32 products) and larger heads, without
// dropout. Both take cu_seqlens. All three read the parts of qkv in place. Head sizes must be whole 16-byte vectors;
// others (TinyBERT's 26) are padded with zeros, at the cost of a copy. ATen operators compose the rest (fp32 and larger
// heads with dropout, double, more sequences than a grid has rows).
//
// Note [No dropout in memory-efficient attention]
// With cu_seqlens, LibTorch 2.11 gives the forward kernel 0 as the longest number of keys (attention.cu, which names
// pytorch/pytorch#115590), and the backward kernel the real one. Both compute from that number which of the generator's
// numbers belong to a head. So all heads of all sequences drop the same places in forward, and backward drops others. The
// gradients are wrong, and no argument mends them.
//
// The gradients of flash and cuDNN are three tensors that LibTorch allocates; one copy joins them. (Its function that takes
// tensors for them, mha_varlen_bwd, is not exported.) The memory-efficient backward writes to one tensor.
// Note [Deterministic attention]
// The backwards of flash and of the memory-efficient kernels add up dq in an order that differs from run to run, unless
// deterministic algorithms are on. The trainer switches them on (app/device/determinism.h). Then flash keeps
// ceil(multiprocessors / (sequences * heads)) copies of dq in fp32: one copy, as otherwise, from 132 / 16 = 9 sequences
// of BERT-large on an H200. The memory-efficient backward then does not split the keys, which leaves the chip idle only
// if there are few sequences.
//
// Note [Random numbers of attention dropout on CUDA]
// The kernels of flash and cuDNN drop by LibTorch's generator of the device, not by keys. Before every forward its state is set from the
// number of the micro-batch's first sequence (app/train/step/training_step.cc), so a resumed run drops the same elements.
// Masks depend on the backend. The host sets the state, so a CUDA graph of a step would replay the masks of one
// micro-batch unless the seed is set again before each replay.
constexpr int64_t kCudnnVersion = 91500;   // LibTorch prefers newer versions
constexpr double kCudnnDropoutSteps = 16;  // steps of the probability, from 0 to 1
constexpr int64_t kCudnnLengthStep = 64;   // Note [Attention backends]
constexpr int64_t kVectorBytes = 16;
constexpr int64_t kMaxSequences = 65535;  // the second and third dimension of a CUDA grid

/// Dimensions of flash's logsumexp, [A, T]. cuDNN's is [B, A, S] or [B, A, S, 1], that of the memory-efficient kernels
/// [B, A, S].
constexpr int64_t kFlashLogsumexpDim = 2;

/// custom_mask_type of the memory-efficient kernels for no mask.
constexpr int64_t kNoMask = 0;

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

/// One call's geometry, and its arguments in the shapes that LibTorch's kernels take.
struct Packed {
  Packed(const AttentionPlatform& platform, const Tensor& qkv, const Tensor& cu_seqlens, int64_t longest,
         int64_t num_heads, double p)
      : tokens(qkv.size(0)),
        sequences(cu_seqlens.size(0) - 1),
        heads(num_heads),
        head_size(qkv.size(1) / 3 / num_heads),
        max_seqlen(std::min(longest, tokens)),
        scale(1.0 / std::sqrt(static_cast<double>(head_size))),
        choice(choose_attention({.dtype = qkv.scalar_type(),
                                 .tokens = tokens,
                                 .sequences = sequences,
                                 .max_seqlen = max_seqlen,
                                 .head_size = head_size,
                                 .p = p},
                                platform)) {
    if (choice.backend == AttentionBackend::kComposite) return;
    TORCH_CHECK(longest > 0, "attention: max_seqlen must be the longest of the ", sequences, " sequences, got ",
                longest);
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
  /// [T, A, D] -> [B, A, S, D], of sequences of one length.
  [[nodiscard]] Tensor by_sequence(const Tensor& x) const {
    return x.unflatten(0, {sequences, max_seqlen}).transpose(1, 2);
  }
  /// [B, A, S, D] -> [T, A, D].
  [[nodiscard]] static Tensor by_token(const Tensor& x) { return x.transpose(1, 2).flatten(0, 1); }
  /// [T, ..., D] -> [T, ... * D] without the padding.
  [[nodiscard]] Tensor joined(const Tensor& x) const {
    return x.narrow(-1, 0, head_size).reshape({tokens, -1}).contiguous();
  }

  int64_t tokens, sequences, heads, head_size, max_seqlen;
  double scale;
  AttentionChoice choice;
  Tensor query, key, value;  // [T, A, D]
};

#ifdef BERT_CUDNN_ATTENTION
int64_t cudnn_version() {
  const at::CUDAHooksInterface& hooks = at::detail::getCUDAHooks();
  return hooks.hasCuDNN() ? hooks.versionRuntimeCuDNN() : 0;
}

std::tuple<Tensor, Tensor, Tensor> cudnn(const Packed& a, double p) {
  auto [out, logsumexp, cu_q, cu_k, max_q, max_k, seed, offset, debug_mask] = at::_cudnn_attention_forward(
      a.by_sequence(a.query), a.by_sequence(a.key), a.by_sequence(a.value), /*attn_bias=*/std::nullopt,
      /*cum_seq_q=*/std::nullopt, /*cum_seq_k=*/std::nullopt, a.max_seqlen, a.max_seqlen, /*compute_log_sumexp=*/true,
      p, /*is_causal=*/false, /*return_debug_mask=*/false, a.scale);
  const Tensor rng_state =
      p > 0.0 ? at::stack({seed, offset}) : at::empty({2}, a.query.options().dtype(at::kLong));  // not read
  return {a.joined(Packed::by_token(out)), logsumexp, rng_state};
}

Tensor cudnn_backward(const Packed& a, const Tensor& grad, const Tensor& out, const Tensor& logsumexp,
                      const Tensor& rng_state, double p) {
  // cuDNN requires 16-byte alignment; the second element has 8 bytes.
  const Tensor offset = p > 0.0 ? rng_state.select(0, 1).clone() : rng_state.select(0, 1);
  const auto [dquery, dkey, dvalue] = at::_cudnn_attention_backward(
      a.by_sequence(a.by_head(grad)), a.by_sequence(a.query), a.by_sequence(a.key), a.by_sequence(a.value),
      a.by_sequence(a.by_head(out)), logsumexp, rng_state.select(0, 0), offset,
      /*attn_bias=*/Tensor(), /*cum_seq_q=*/Tensor(), /*cum_seq_k=*/Tensor(), a.max_seqlen, a.max_seqlen, p,
      /*is_causal=*/false, a.scale);
  return a.joined(at::stack({Packed::by_token(dquery), Packed::by_token(dkey), Packed::by_token(dvalue)}, 1));
}
#else
int64_t cudnn_version() { return 0; }  // so that it is not chosen

std::tuple<Tensor, Tensor, Tensor> cudnn(const Packed& /*a*/, double /*p*/) {
  TORCH_INTERNAL_ASSERT(false, "this LibTorch has no attention by cuDNN");
}

Tensor cudnn_backward(const Packed& /*a*/, const Tensor& /*grad*/, const Tensor& /*out*/, const Tensor& /*logsumexp*/,
                      const Tensor& /*rng_state*/, double /*p*/) {
  TORCH_INTERNAL_ASSERT(false, "this LibTorch has no attention by cuDNN");
}
#endif

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

std::tuple<Tensor, Tensor, Tensor> efficient(const Packed& a, const Tensor& cu_seqlens) {
  auto [out, logsumexp, seed, offset, max_q, max_k] = at::_efficient_attention_forward(
      a.query.unsqueeze(0), a.key.unsqueeze(0), a.value.unsqueeze(0), /*bias=*/std::nullopt, cu_seqlens, cu_seqlens,
      a.max_seqlen, a.max_seqlen, /*dropout_p=*/0.0, kNoMask, /*compute_log_sumexp=*/true, a.scale);
  return {a.joined(out.squeeze(0)), logsumexp, at::empty({0}, at::kLong)};
}

Tensor efficient_backward(const Packed& a, const Tensor& grad, const Tensor& out, const Tensor& logsumexp,
                          const Tensor& cu_seqlens) {
  const Tensor unused = at::zeros({2}, at::kLong);  // seed and offset
  const auto [dquery, dkey, dvalue, dbias] = at::_efficient_attention_backward(
      a.by_head(grad).unsqueeze(0), a.query.unsqueeze(0), a.key.unsqueeze(0), a.value.unsqueeze(0),
      /*bias=*/std::nullopt, a.by_head(out).unsqueeze(0), cu_seqlens, cu_seqlens, a.max_seqlen, a.max_seqlen, logsumexp,
      /*dropout_p=*/0.0, unused.select(0, 0), unused.select(0, 1), kNoMask, /*bias_requires_grad=*/false, a.scale,
      /*num_splits_key=*/std::nullopt, /*window_size=*/std::nullopt, /*shared_storage_dqdkdv=*/true);
  // The three are views of one [1, T, 3, A, D].
  const int64_t row = a.heads * a.choice.head_size;
  TORCH_INTERNAL_ASSERT(dvalue.is_alias_of(dquery) && dvalue.storage_offset() == dquery.storage_offset() + 2 * row);
  return a.joined(dquery.as_strided({a.tokens, 3, a.heads, a.choice.head_size}, {3 * row, row, a.choice.head_size, 1}));
}

/// True if logsumexp has the form that the forward of the chosen kernels gives it. LibTorch's backwards would read
/// beyond a smaller one.
bool is_of_forward(const Packed& a, const Tensor& logsumexp) {
  if (a.choice.backend == AttentionBackend::kComposite) return true;  // not read
  if (logsumexp.scalar_type() != at::kFloat || logsumexp.device() != a.query.device()) return false;
  if (a.choice.backend == AttentionBackend::kFlash) {
    return logsumexp.sizes() == at::IntArrayRef({a.heads, a.tokens}) && logsumexp.is_contiguous();
  }
  return logsumexp.dim() > kFlashLogsumexpDim && logsumexp.size(0) == a.sequences && logsumexp.size(1) == a.heads &&
         logsumexp.size(2) >= a.max_seqlen;
}

}  // namespace

AttentionPlatform attention_platform(c10::Device device) {
  const int capability = compat::compute_capability(device);
  return {.compute_capability = capability,
          .cudnn_version = capability > 0 ? cudnn_version() : 0,
          .deterministic = at::globalContext().deterministicAlgorithms()};
}

bool cudnn_drops(double p) { return p * kCudnnDropoutSteps == std::floor(p * kCudnnDropoutSteps); }

AttentionChoice choose_attention(const AttentionProblem& problem, const AttentionPlatform& platform) {
  const bool low = problem.dtype == at::kHalf || problem.dtype == at::kBFloat16;
  if ((!low && problem.dtype != at::kFloat) || problem.sequences > kMaxSequences || problem.tokens == 0) {
    return {AttentionBackend::kComposite, problem.head_size};
  }
  const int64_t padded =
      round_up(problem.head_size, kVectorBytes / static_cast<int64_t>(c10::elementSize(problem.dtype)));
  const bool preferred = (platform.compute_capability == 90 || platform.compute_capability == 100) &&
                         platform.cudnn_version > kCudnnVersion && !platform.deterministic;
  const bool equal = problem.sequences > 1 && problem.max_seqlen % kCudnnLengthStep == 0 &&
                     problem.tokens == problem.sequences * problem.max_seqlen;
  const AttentionDropout dropout = problem.p == 0.0         ? AttentionDropout::kNone
                                   : cudnn_drops(problem.p) ? AttentionDropout::kSixteenths
                                                            : AttentionDropout::kAny;
  for (const AttentionRow& row : kAttentionRows) {
    if ((low ? row.low_precision : row.fp32) && (equal || row.unequal_lengths) && dropout <= row.dropout &&
        padded <= row.max_head_size && (preferred || !row.preferred_only))
      return {row.backend, padded};
  }
  return {AttentionBackend::kComposite, problem.head_size};
}

std::tuple<Tensor, Tensor, Tensor> attention(const AttentionPlatform& platform, const Tensor& qkv,
                                             const Tensor& cu_seqlens, int64_t max_seqlen, int64_t num_heads, double p,
                                             int64_t seed, int64_t site, const OptionalTensor& keys) {
  const Packed a(platform, qkv, cu_seqlens, max_seqlen, num_heads, p);
  switch (a.choice.backend) {
    case AttentionBackend::kCudnn:
      return cudnn(a, p);
    case AttentionBackend::kFlash:
      return flash(a, cu_seqlens, p);
    case AttentionBackend::kEfficient:
      return efficient(a, cu_seqlens);
    case AttentionBackend::kComposite:
      break;
  }
  return composite::attention(qkv, cu_seqlens, max_seqlen, num_heads, p, seed, site, keys);
}

Tensor attention_backward(const AttentionPlatform& platform, const Tensor& grad, const Tensor& qkv, const Tensor& out,
                          const Tensor& logsumexp, const Tensor& rng_state, const Tensor& cu_seqlens,
                          int64_t max_seqlen, int64_t num_heads, double p, int64_t seed, int64_t site,
                          const OptionalTensor& keys) {
  // Only deterministic algorithms can make the forward's choice differ from the current one: they turn cuDNN into
  // flash.
  AttentionPlatform at_forward = platform;
  at_forward.deterministic = logsumexp.dim() == kFlashLogsumexpDim;
  const Packed a(at_forward, qkv, cu_seqlens, max_seqlen, num_heads, p);
  constexpr auto kRemedy =
      " Hand on forward's own outputs, with the same qkv, cu_seqlens, max_seqlen and p, on the same device.";
  TORCH_CHECK(is_of_forward(a, logsumexp), "attention_backward: forward's logsumexp has sizes ", logsumexp.sizes(), " ",
              logsumexp.scalar_type(), " on ", logsumexp.device(),
              ", which are not those of the kernels that are chosen now.", kRemedy);
  TORCH_CHECK(a.choice.backend == AttentionBackend::kComposite || p == 0.0 || rng_state.numel() == 2,
              "attention_backward: rng_state must be [2], got ", rng_state.sizes(), ".", kRemedy);
  switch (a.choice.backend) {
    case AttentionBackend::kCudnn:
      return cudnn_backward(a, grad, out, logsumexp, rng_state, p);
    case AttentionBackend::kFlash:
      return flash_backward(a, grad, out, logsumexp, rng_state, cu_seqlens, p);
    case AttentionBackend::kEfficient:
      return efficient_backward(a, grad, out, logsumexp, cu_seqlens);
    case AttentionBackend::kComposite:
      break;
  }
  return composite::attention_backward(grad, qkv, out, logsumexp, rng_state, cu_seqlens, max_seqlen, num_heads, p, seed,
                                       site, keys);
}

namespace {

std::tuple<Tensor, Tensor, Tensor> attention_here(const Tensor& qkv, const Tensor& cu_seqlens, int64_t max_seqlen,
                                                  int64_t num_heads, double p, int64_t seed, int64_t site,
                                                  const OptionalTensor& keys) {
  return attention(attention_platform(qkv.device()), qkv, cu_seqlens, max_seqlen, num_heads, p, seed, site, keys);
}

Tensor attention_backward_here(const Tensor& grad, const Tensor& qkv, const Tensor& out, const Tensor& logsumexp,
                               const Tensor& rng_state, const Tensor& cu_seqlens, int64_t max_seqlen, int64_t num_heads,
                               double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
  return attention_backward(attention_platform(qkv.device()), grad, qkv, out, logsumexp, rng_state, cu_seqlens,
                            max_seqlen, num_heads, p, seed, site, keys);
}

}  // namespace
}  // namespace bert::cuda

TORCH_LIBRARY_IMPL(bert, CUDA, m) {
  m.impl("attention", bert::cuda::attention_here);
  m.impl("attention_backward", bert::cuda::attention_backward_here);
}
