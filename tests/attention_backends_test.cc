// Attention on CUDA, without a GPU: which of LibTorch's kernels is chosen, and that each is called as LibTorch's own
// code calls it. Stand-ins take the place of LibTorch's kernels, which have no CPU version: they refuse what those
// refuse, want what those want, and compute in double, one sequence and one head at a time.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>
#include <vector>

#include "cuda_ext/attention.h"
#include "cuda_ext/ops.h"
#include "tests/testing.h"

namespace bert {
namespace {

using at::Tensor;
using cuda::AttentionBackend;
using cuda::AttentionChoice;
using OptionalTensor = std::optional<Tensor>;
using OptionalInt = std::optional<int64_t>;

constexpr int64_t kSeed = 7, kOffset = 9;  // what the stand-ins say the state of the generator was
int flash_calls = 0, efficient_calls = 0;

/// What LibTorch's kernels demand of query, key and value [T, A, D].
void check_heads(const Tensor& x, int64_t alignment) {
  TORCH_CHECK(x.dim() == 3 && x.stride(2) == 1 && x.size(2) % alignment == 0 && x.stride(0) % alignment == 0 &&
                  x.stride(1) % alignment == 0 && x.storage_offset() % alignment == 0,
              "query, key or value of sizes ", x.sizes(), " and strides ", x.strides());
}
void check_lengths(const Tensor& cu, int64_t tokens, int64_t max_seqlen) {
  TORCH_CHECK(cu.scalar_type() == at::kInt && cu.is_contiguous() && cu.dim() == 1, "cu_seqlens ", cu);
  TORCH_CHECK(max_seqlen > 0 && max_seqlen <= tokens, "max_seqlen ", max_seqlen);
  TORCH_CHECK((cu.diff() <= max_seqlen).all().item<bool>(), "a sequence is longer than max_seqlen ", max_seqlen);
}

/// Dropout that keeps every other key and doubles it.
Tensor kept(int64_t length, double p) {
  return p > 0.0 ? at::arange(length, at::kDouble).remainder(2) * 2 : at::ones({length}, at::kDouble);
}

/// softmax(q k^T scale) v within each sequence.
struct Reference {
  Tensor out;        // [T, A, D]
  Tensor logsumexp;  // [A, T]
};
Reference reference(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& cu, double p,
                    double scale) {
  std::vector<Tensor> outs, sums;
  for (int64_t b = 0; b + 1 < cu.numel(); ++b) {
    const int64_t start = cu[b].item<int64_t>(), length = cu[b + 1].item<int64_t>() - start;
    const auto part = [&](const Tensor& x) { return x.narrow(0, start, length).transpose(0, 1).to(at::kDouble); };
    const Tensor scores = at::matmul(part(query), part(key).transpose(1, 2)) * scale;
    outs.push_back(at::matmul(at::softmax(scores, 2) * kept(length, p), part(value)).transpose(0, 1));
    sums.push_back(at::logsumexp(scores, {2}));
  }
  return {at::cat(outs), at::cat(sums, 1)};
}
std::vector<Tensor> gradients(const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value,
                              const Tensor& cu, double p, double scale) {
  std::vector<Tensor> parts[3];
  for (int64_t b = 0; b + 1 < cu.numel(); ++b) {
    const int64_t start = cu[b].item<int64_t>(), length = cu[b + 1].item<int64_t>() - start;
    const auto part = [&](const Tensor& x) { return x.narrow(0, start, length).transpose(0, 1).to(at::kDouble); };
    const Tensor q = part(query), k = part(key), v = part(value), dout = part(grad), keep = kept(length, p);
    const Tensor probabilities = at::softmax(at::matmul(q, k.transpose(1, 2)) * scale, 2);
    const Tensor dprobabilities = at::matmul(dout, v.transpose(1, 2)) * keep;
    const Tensor dscores =
        probabilities * (dprobabilities - (dprobabilities * probabilities).sum(2, /*keepdim=*/true)) * scale;
    parts[0].push_back(at::matmul(dscores, k).transpose(0, 1));
    parts[1].push_back(at::matmul(dscores.transpose(1, 2), q).transpose(0, 1));
    parts[2].push_back(at::matmul((probabilities * keep).transpose(1, 2), dout).transpose(0, 1));
  }
  std::vector<Tensor> result;
  for (const auto& part : parts) result.push_back(at::cat(part).to(query.scalar_type()));
  return result;
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> flash_forward(
    const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& cu_q, const OptionalTensor& cu_k,
    int64_t max_q, int64_t max_k, double p, bool is_causal, bool return_debug_mask, std::optional<double> scale,
    OptionalInt, OptionalInt, const OptionalTensor& seqused_k, const OptionalTensor& alibi_slopes) {
  ++flash_calls;
  TORCH_CHECK(query.scalar_type() == at::kHalf || query.scalar_type() == at::kBFloat16, "fp16 and bf16 only");
  for (const Tensor& x : {query, key, value}) check_heads(x, 8);
  TORCH_CHECK(query.size(2) <= 256 && max_q == max_k && !is_causal && !return_debug_mask && !seqused_k && !alibi_slopes,
              "arguments of flash attention");
  check_lengths(*cu_q, query.size(0), max_q);
  check_lengths(*cu_k, key.size(0), max_k);
  const Reference r = reference(query, key, value, *cu_q, p, *scale);
  return {r.out.to(query.scalar_type()), r.logsumexp.to(at::kFloat),
          at::tensor({kSeed, kOffset}, at::kLong).to(at::kUInt64), at::empty({}, at::kUInt64),
          at::empty({0}, query.options())};
}

std::tuple<Tensor, Tensor, Tensor> flash_backward(const Tensor& grad, const Tensor& query, const Tensor& key,
                                                  const Tensor& value, const Tensor& out, const Tensor& logsumexp,
                                                  const Tensor& cu_q, const Tensor& cu_k, int64_t max_q, int64_t max_k,
                                                  double p, bool is_causal, const Tensor& rng_state,
                                                  const Tensor& /*unused*/, std::optional<double> scale, OptionalInt,
                                                  OptionalInt) {
  ++flash_calls;
  for (const Tensor& x : {query, key, value, grad, out}) check_heads(x, 8);
  TORCH_CHECK(grad.sizes() == query.sizes() && out.sizes() == query.sizes() &&
                  grad.scalar_type() == query.scalar_type() && !is_causal && max_q == max_k,
              "arguments of flash attention's backward");
  TORCH_CHECK(logsumexp.sizes() == at::IntArrayRef({query.size(1), query.size(0)}), "logsumexp ", logsumexp.sizes());
  TORCH_CHECK(rng_state.scalar_type() == at::kUInt64 && rng_state.numel() == 2 &&
                  rng_state.to(at::kLong).equal(at::tensor({kSeed, kOffset}, at::kLong)),
              "rng_state ", rng_state);
  check_lengths(cu_q, query.size(0), max_q);
  check_lengths(cu_k, query.size(0), max_k);
  const Reference r = reference(query, key, value, cu_q, p, *scale);
  TORCH_CHECK(at::allclose(out.to(at::kDouble), r.out, 1e-2, 1e-2), "out is not that of forward");
  const auto d = gradients(grad, query, key, value, cu_q, p, *scale);
  return {d[0], d[1], d[2]};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt> efficient_forward(
    const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& bias, const OptionalTensor& cu_q,
    const OptionalTensor& cu_k, OptionalInt max_q, OptionalInt max_k, double p, int64_t custom_mask_type,
    bool compute_log_sumexp, std::optional<double> scale, const OptionalTensor& seqlen_k, OptionalInt window_size) {
  ++efficient_calls;
  const int64_t alignment = query.scalar_type() == at::kFloat ? 4 : 8;
  for (const Tensor& x : {query, key, value}) {
    TORCH_CHECK(x.dim() == 4 && x.size(0) == 1, "with cu_seqlens a batch of one is expected, got ", x.sizes());
    check_heads(x[0], alignment);
  }
  TORCH_CHECK(!bias && custom_mask_type == 0 && compute_log_sumexp && !seqlen_k && !window_size,
              "arguments of memory-efficient attention");
  check_lengths(*cu_q, query.size(1), *max_q);
  check_lengths(*cu_k, key.size(1), *max_k);
  const Reference r = reference(query[0], key[0], value[0], *cu_q, p, *scale);
  const auto scalar = [](int64_t value_of) { return at::scalar_tensor(value_of, at::kLong); };
  const Tensor logsumexp = at::zeros({cu_q->numel() - 1, query.size(2), (*max_q + 31) / 32 * 32});
  return {r.out.to(query.scalar_type()).unsqueeze(0), logsumexp, scalar(kSeed), scalar(kOffset), *max_q, *max_k};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> efficient_backward(
    const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& bias,
    const Tensor& out, const OptionalTensor& cu_q, const OptionalTensor& cu_k, int64_t max_q, int64_t max_k,
    const Tensor& logsumexp, double p, const Tensor& seed, const Tensor& offset, int64_t custom_mask_type,
    bool bias_requires_grad, std::optional<double> scale, OptionalInt num_splits_key, OptionalInt window_size,
    bool shared_storage) {
  ++efficient_calls;
  TORCH_CHECK(!bias && custom_mask_type == 0 && !bias_requires_grad && !num_splits_key && !window_size,
              "arguments of memory-efficient attention's backward");
  TORCH_CHECK(grad.sizes() == query.sizes() && out.sizes() == query.sizes() && grad.is_contiguous(), "grad or out");
  TORCH_CHECK(logsumexp.size(0) == cu_q->numel() - 1 && logsumexp.size(1) == query.size(2), "logsumexp");
  TORCH_CHECK(seed.scalar_type() == at::kLong && seed.numel() == 1 && offset.numel() == 1, "seed and offset");
  TORCH_CHECK(p == 0.0 || (*seed.const_data_ptr<int64_t>() == kSeed && *offset.const_data_ptr<int64_t>() == kOffset),
              "seed ", seed, " and offset ", offset);
  check_lengths(*cu_q, query.size(1), max_q);
  check_lengths(*cu_k, key.size(1), max_k);
  const auto d = gradients(grad[0], query[0], key[0], value[0], *cu_q, p, *scale);
  TORCH_CHECK(shared_storage, "a gradient of qkv in one piece is expected");
  const Tensor chunk = at::stack({d[0], d[1], d[2]}, 1).unsqueeze(0);  // [1, T, 3, A, D]
  return {chunk.select(2, 0), chunk.select(2, 1), chunk.select(2, 2), Tensor()};
}

TORCH_LIBRARY_IMPL(aten, CPU, m) {
  m.impl("_flash_attention_forward", flash_forward);
  m.impl("_flash_attention_backward", flash_backward);
  m.impl("_efficient_attention_forward", efficient_forward);
  m.impl("_efficient_attention_backward", efficient_backward);
}

TEST_CASE("Attention on CUDA chooses its kernels by dtype, head size and number of sequences", "[unit]") {
  const auto choice = [](at::ScalarType type, int64_t head_size, int64_t sequences = 32) {
    return cuda::choose_attention(type, head_size, sequences);
  };
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    CHECK(choice(type, 64) == AttentionChoice{AttentionBackend::kFlash, 64});
    CHECK(choice(type, 26) == AttentionChoice{AttentionBackend::kFlash, 32});  // TinyBERT: 312 / 12
    CHECK(choice(type, 1) == AttentionChoice{AttentionBackend::kFlash, 8});
    CHECK(choice(type, 192) == AttentionChoice{AttentionBackend::kFlash, 192});
    CHECK(choice(type, 193) == AttentionChoice{AttentionBackend::kEfficient, 200});
    CHECK(choice(type, 64, 65535) == AttentionChoice{AttentionBackend::kFlash, 64});
    CHECK(choice(type, 64, 65536) == AttentionChoice{AttentionBackend::kComposite, 64});
  }
  CHECK(choice(at::kFloat, 64) == AttentionChoice{AttentionBackend::kEfficient, 64});
  CHECK(choice(at::kFloat, 26) == AttentionChoice{AttentionBackend::kEfficient, 28});
  CHECK(choice(at::kFloat, 512) == AttentionChoice{AttentionBackend::kEfficient, 512});
  CHECK(choice(at::kDouble, 64) == AttentionChoice{AttentionBackend::kComposite, 64});
}

TEST_CASE("Attention on CUDA gives LibTorch's kernels what they take, and puts their results together", "[unit]") {
  const Tensor cu = at::tensor({0, 5, 5, 18, 21}, at::kInt);  // one sequence is empty
  constexpr int64_t kTokens = 21, kLongest = 13;
  for (const auto type : {at::kHalf, at::kBFloat16, at::kFloat}) {
    for (const int64_t head_size : {1, 26, 64, 200}) {
      for (const double p : {0.0, 0.5}) {
        constexpr int64_t kHeads = 3;
        const int64_t hidden = kHeads * head_size;
        INFO(type << " head size " << head_size << " p " << p);
        const auto generator = at::detail::createCPUGenerator(5);
        const Tensor qkv = at::randn({kTokens, 3 * hidden}, generator, at::kDouble).to(type);
        const Tensor grad = at::randn({kTokens, hidden}, generator, at::kDouble).to(type);
        flash_calls = efficient_calls = 0;
        // A longest sequence that is longer than all tokens is still a bound.
        const int64_t longest = head_size == 26 ? kTokens + 100 : kLongest;
        const auto [out, logsumexp, rng_state] = cuda::attention(qkv, cu, longest, kHeads, p, 1, 16, std::nullopt);
        const Tensor dqkv =
            cuda::attention_backward(grad, qkv, out, logsumexp, rng_state, cu, longest, kHeads, p, 1, 16, std::nullopt);
        const bool flash = type != at::kFloat && head_size <= 192;
        CHECK(flash_calls == (flash ? 2 : 0));
        CHECK(efficient_calls == (flash ? 0 : 2));

        const Tensor parts = qkv.to(at::kDouble).view({kTokens, 3, kHeads, head_size});
        const double scale = 1.0 / std::sqrt(static_cast<double>(head_size));
        const Tensor query = parts.select(1, 0), key = parts.select(1, 1), value = parts.select(1, 2);
        const Tensor want = reference(query, key, value, cu, p, scale).out.reshape({kTokens, hidden});
        const auto d = gradients(grad.view({kTokens, kHeads, head_size}), query, key, value, cu, p, scale);
        const Tensor dwant = at::stack({d[0], d[1], d[2]}, 1).reshape({kTokens, 3 * hidden});
        const testing::Tolerance limit = type == at::kFloat  ? testing::kFloat
                                         : type == at::kHalf ? testing::kHalf
                                                             : testing::kBFloat16;
        CHECK(out.scalar_type() == type);
        CHECK(dqkv.scalar_type() == type);
        CHECK(out.is_contiguous());
        CHECK(dqkv.is_contiguous());
        CHECK(at::allclose(out.to(at::kDouble), want, limit.relative, limit.absolute));
        CHECK(at::allclose(dqkv.to(at::kDouble), dwant, limit.relative, limit.absolute));
      }
    }
  }
}

TEST_CASE("Attention on CUDA composes what LibTorch's kernels do not take", "[unit]") {
  const Tensor cu = at::tensor({0, 2, 5}, at::kInt), keys = at::arange(5, at::kLong);
  const Tensor qkv = at::randn({5, 18}, at::detail::createCPUGenerator(1), at::kDouble);
  flash_calls = efficient_calls = 0;
  const auto [out, logsumexp, rng_state] = cuda::attention(qkv, cu, 3, 2, 0.2, 1, 16, keys);
  CHECK(at::allclose(out, ops::attention(qkv, cu, 3, 2, {.p = 0.2, .seed = 1, .site = 16, .keys = keys})));
  CHECK(cuda::attention_backward(out, qkv, out, logsumexp, rng_state, cu, 3, 2, 0.2, 1, 16, keys).sizes() ==
        qkv.sizes());
  const Tensor nothing = at::empty({0, 48}, at::kHalf), none = at::zeros({1}, at::kInt);
  const auto [empty, sums, state] = cuda::attention(nothing, none, 0, 2, 0.1, 1, 16, std::nullopt);
  CHECK(empty.sizes() == at::IntArrayRef({0, 16}));
  CHECK(cuda::attention_backward(empty, nothing, empty, sums, state, none, 0, 2, 0.1, 1, 16, std::nullopt).numel() ==
        0);
  CHECK(flash_calls + efficient_calls == 0);
  CHECK_THROWS_WITH(cuda::attention(at::zeros({5, 48}, at::kHalf), cu, 0, 2, 0.0, 1, 16, std::nullopt),
                    testing::Contains("max_seqlen must be the longest of the 2 sequences, got 0"));
}

}  // namespace
}  // namespace bert
