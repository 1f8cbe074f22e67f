// Attention on CUDA, without a GPU: the choice of LibTorch's kernels, and the arguments that each gets. Stand-ins
// replace LibTorch's kernels, which have no CPU version. They refuse the same arguments, require the same shapes, and
// compute in double, one sequence and one head at a time.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>
#include <functional>
#include <vector>

#include "cuda_ext/cuda/attention.h"
#include "cuda_ext/ops.h"
#include "tests/support/mismatch.h"
#include "tests/testing.h"

namespace bert {
namespace {

using at::Tensor;
using cuda::AttentionBackend;
using cuda::AttentionChoice;
using cuda::AttentionPlatform;
using OptionalTensor = std::optional<Tensor>;
using OptionalInt = std::optional<int64_t>;

constexpr int64_t kSeed = 7, kOffset = 9;  // the stand-ins' state of the generator
int cudnn_calls = 0, flash_calls = 0, efficient_calls = 0;
constexpr AttentionPlatform kAmpere{.compute_capability = 80, .cudnn_version = 91900},
    kHopper{.compute_capability = 90, .cudnn_version = 91900},
    kDeterministic{.compute_capability = 90, .cudnn_version = 91900, .deterministic = true};

/// Checks the requirements of LibTorch's kernels on query, key and value [T, A, D].
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
  const std::string difference = testing::mismatch(out, r.out);
  TORCH_CHECK(difference.empty(), "out is not that of forward: ", difference);
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
  TORCH_CHECK(p == 0.0, "these kernels drop other places in backward than in forward");
  check_lengths(*cu_q, query.size(1), max_q);
  check_lengths(*cu_k, key.size(1), max_k);
  const auto d = gradients(grad[0], query[0], key[0], value[0], *cu_q, p, *scale);
  TORCH_CHECK(shared_storage, "a gradient of qkv in one piece is expected");
  const Tensor chunk = at::stack({d[0], d[1], d[2]}, 1).unsqueeze(0);  // [1, T, 3, A, D]
  return {chunk.select(2, 0), chunk.select(2, 1), chunk.select(2, 2), Tensor()};
}

/// Checks the requirements of cuDNN on [B, A, S, D], and returns the tensor as [T, A, D].
Tensor by_token(const Tensor& x) {
  TORCH_CHECK(x.dim() == 4 && x.stride(3) == 1 && x.size(3) % 8 == 0 && x.size(3) <= 128 && x.size(2) > 1,
              "query, key or value of sizes ", x.sizes(), " and strides ", x.strides());
  for (int64_t i = 0; i < 3; ++i) TORCH_CHECK(x.stride(i) % 8 == 0, "strides ", x.strides());
  return x.transpose(1, 2).flatten(0, 1);
}
/// [T, A, D] in cuDNN's shape, in the order of qkv's dimensions.
Tensor by_sequence(const Tensor& x, int64_t sequences) { return x.unflatten(0, {sequences, -1}).transpose(1, 2); }

Tensor equal_lengths(const Tensor& query) { return at::arange(query.size(0) + 1, at::kInt) * query.size(2); }

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor> cudnn_forward(
    const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& attn_bias,
    const OptionalTensor& cu_q, const OptionalTensor& cu_k, int64_t max_q, int64_t max_k, bool compute_log_sumexp,
    double p, bool is_causal, bool return_debug_mask, std::optional<double> scale) {
  ++cudnn_calls;
  TORCH_CHECK(query.scalar_type() == at::kHalf || query.scalar_type() == at::kBFloat16, "fp16 and bf16 only");
  TORCH_CHECK(!attn_bias && !cu_q && !cu_k && max_q == query.size(2) && max_k == max_q && compute_log_sumexp &&
                  !is_causal && !return_debug_mask && 16 * p == std::floor(16 * p),
              "arguments of cuDNN's attention");
  const Reference r = reference(by_token(query), by_token(key), by_token(value), equal_lengths(query), p, *scale);
  const auto scalar = [](int64_t value_of) { return at::scalar_tensor(value_of, at::kLong); };
  const Tensor logsumexp = r.logsumexp.unflatten(1, {query.size(0), -1}).transpose(0, 1).to(at::kFloat).contiguous();
  return {by_sequence(r.out.to(query.scalar_type()), query.size(0)),
          logsumexp,
          Tensor(),
          Tensor(),
          max_q,
          max_k,
          scalar(kSeed),
          scalar(kOffset),
          Tensor()};
}

std::tuple<Tensor, Tensor, Tensor> cudnn_backward(const Tensor& grad, const Tensor& query, const Tensor& key,
                                                  const Tensor& value, const Tensor& out, const Tensor& logsumexp,
                                                  const Tensor& seed, const Tensor& offset, const Tensor& attn_bias,
                                                  const Tensor& cu_q, const Tensor& cu_k, int64_t max_q, int64_t max_k,
                                                  double p, bool is_causal, std::optional<double> scale) {
  ++cudnn_calls;
  TORCH_CHECK(!attn_bias.defined() && !cu_q.defined() && !cu_k.defined() && max_q == query.size(2) && max_k == max_q &&
                  !is_causal && grad.sizes() == query.sizes() && out.strides() == grad.strides(),
              "arguments of cuDNN's backward");
  TORCH_CHECK(logsumexp.sizes() == at::IntArrayRef({query.size(0), query.size(1), max_q}), "logsumexp");
  TORCH_CHECK(seed.scalar_type() == at::kLong && seed.dim() == 0 && offset.dim() == 0, "seed and offset");
  TORCH_CHECK(p == 0.0 || (*seed.const_data_ptr<int64_t>() == kSeed && *offset.const_data_ptr<int64_t>() == kOffset),
              "seed ", seed, " and offset ", offset);
  const Tensor cu = equal_lengths(query);
  const Reference r = reference(by_token(query), by_token(key), by_token(value), cu, p, *scale);
  const std::string difference = testing::mismatch(by_token(out), r.out);
  TORCH_CHECK(difference.empty(), "out is not that of forward: ", difference);
  const auto d = gradients(by_token(grad), by_token(query), by_token(key), by_token(value), cu, p, *scale);
  return {by_sequence(d[0], query.size(0)), by_sequence(d[1], query.size(0)), by_sequence(d[2], query.size(0))};
}

TORCH_LIBRARY_IMPL(aten, CPU, m) {
  m.impl("_cudnn_attention_forward", cudnn_forward);
  m.impl("_cudnn_attention_backward", cudnn_backward);
  m.impl("_flash_attention_forward", flash_forward);
  m.impl("_flash_attention_backward", flash_backward);
  m.impl("_efficient_attention_forward", efficient_forward);
  m.impl("_efficient_attention_backward", efficient_backward);
}

TEST_CASE("Attention on CUDA chooses its kernels by dtype, head size and number of sequences", "[unit]") {
  const auto choice = [](at::ScalarType type, int64_t head_size, int64_t sequences = 32) {
    return cuda::choose_attention({.dtype = type,
                                   .tokens = sequences * 100 + 1,
                                   .sequences = sequences,
                                   .max_seqlen = 128,
                                   .head_size = head_size},
                                  kHopper);
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

TEST_CASE("Attention on CUDA is cuDNN's where all lengths are equal and LibTorch would have it so", "[unit]") {
  struct Variation {
    cuda::AttentionProblem problem{
        .dtype = at::kBFloat16, .tokens = 32 * 128, .sequences = 32, .max_seqlen = 128, .head_size = 64};
    AttentionPlatform platform = kHopper;
  };
  const auto backend = [](const std::function<void(Variation&)>& change) {
    Variation v;
    change(v);
    return cuda::choose_attention(v.problem, v.platform).backend;
  };
  using Change = std::function<void(Variation&)>;
  const std::vector<Change> cudnn = {
      [](Variation&) {},
      [](Variation& v) { v.problem.dtype = at::kHalf; },
      [](Variation& v) { v.problem.head_size = 128; },
      [](Variation& v) { v.problem.head_size = 26; },
      [](Variation& v) { v.problem.p = 0.125; },
      [](Variation& v) { v.platform.compute_capability = 100; },
      [](Variation& v) { v.problem.tokens = 2 * 512, v.problem.max_seqlen = 512, v.problem.sequences = 2; },
  };
  const std::vector<Change> flash = {
      [](Variation& v) { v.problem.tokens -= 1; },
      [](Variation& v) { v.problem.max_seqlen = 129; },  // a bound that no sequence reaches
      [](Variation& v) { v.problem.head_size = 129; },
      [](Variation& v) { v.problem.p = 0.1; },
      [](Variation& v) { v.problem.max_seqlen = 1, v.problem.tokens = 32; },
      [](Variation& v) { v.problem.tokens = v.problem.max_seqlen = 512, v.problem.sequences = 1; },
      [](Variation& v) { v.problem.max_seqlen = 100, v.problem.tokens = 3200; },
      [](Variation& v) { v.platform.deterministic = true; },
      [](Variation& v) { v.platform.cudnn_version = 91500; },
      [](Variation& v) { v.platform.cudnn_version = 0; },
      [](Variation& v) { v.platform.compute_capability = 80; },
      [](Variation& v) { v.platform.compute_capability = 120; },
  };
  for (size_t i = 0; i < cudnn.size(); ++i) {
    INFO("variation " << i);
    CHECK(backend(cudnn[i]) == AttentionBackend::kCudnn);
  }
  for (size_t i = 0; i < flash.size(); ++i) {
    INFO("variation " << i);
    CHECK(backend(flash[i]) == AttentionBackend::kFlash);
  }
  CHECK(backend([](Variation& v) { v.problem.dtype = at::kFloat; }) == AttentionBackend::kEfficient);
  CHECK(backend([](Variation& v) { v.problem.dtype = at::kFloat, v.problem.p = 0.1; }) == AttentionBackend::kComposite);
  CHECK(backend([](Variation& v) { v.problem.head_size = 200, v.problem.p = 0.1; }) == AttentionBackend::kComposite);
  CHECK(cuda::attention_platform(at::kCPU).compute_capability == 0);
}

/// Checks forward and backward against the reference. The counters of calls of each kernel are kept.
void check_attention(at::ScalarType type, int64_t head_size, double p, const Tensor& cu, int64_t longest,
                     const AttentionPlatform& platform, const AttentionPlatform& platform_of_backward) {
  constexpr int64_t kHeads = 3;
  const int64_t hidden = kHeads * head_size, tokens = cu[-1].item<int64_t>();
  const auto generator = at::detail::createCPUGenerator(5);
  const Tensor qkv = at::randn({tokens, 3 * hidden}, generator, at::kDouble).to(type);
  const Tensor grad = at::randn({tokens, hidden}, generator, at::kDouble).to(type);
  cudnn_calls = flash_calls = efficient_calls = 0;
  const auto [out, logsumexp, rng_state] = cuda::attention(platform, qkv, cu, longest, kHeads, p, 1, 16, std::nullopt);
  const Tensor dqkv = cuda::attention_backward(platform_of_backward, grad, qkv, out, logsumexp, rng_state, cu, longest,
                                               kHeads, p, 1, 16, std::nullopt);

  const Tensor parts = qkv.to(at::kDouble).view({tokens, 3, kHeads, head_size});
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_size));
  const Tensor query = parts.select(1, 0), key = parts.select(1, 1), value = parts.select(1, 2);
  const Tensor want = reference(query, key, value, cu, p, scale).out.reshape({tokens, hidden});
  const auto d = gradients(grad.view({tokens, kHeads, head_size}), query, key, value, cu, p, scale);
  const Tensor dwant = at::stack({d[0], d[1], d[2]}, 1).reshape({tokens, 3 * hidden});
  CHECK(out.scalar_type() == type);
  CHECK(dqkv.scalar_type() == type);
  CHECK(out.is_contiguous());
  CHECK(dqkv.is_contiguous());
  CHECK(testing::mismatch(out, want) == "");
  CHECK(testing::mismatch(dqkv, dwant) == "");
}

TEST_CASE("Attention on CUDA gives LibTorch's kernels what they take, and puts their results together", "[unit]") {
  const Tensor unequal = at::tensor({0, 5, 5, 18, 21}, at::kInt);  // one sequence is empty
  const Tensor equal = at::tensor({0, 64, 128, 192}, at::kInt);
  for (const auto type : {at::kHalf, at::kBFloat16, at::kFloat}) {
    for (const int64_t head_size : {1, 26, 64, 200}) {
      for (const double p : {0.0, 0.5}) {
        if (p > 0.0 && (type == at::kFloat || head_size == 200))
          continue;  // Note [No dropout in memory-efficient attention]
        INFO(type << " head size " << head_size << " p " << p);
        // A max_seqlen beyond the number of tokens is still a bound.
        check_attention(type, head_size, p, unequal, head_size == 26 ? 121 : 13, kHopper, kHopper);
        const bool flash = type != at::kFloat && head_size <= 192;
        CHECK(cudnn_calls == 0);
        CHECK(flash_calls == (flash ? 2 : 0));
        CHECK(efficient_calls == (flash ? 0 : 2));

        check_attention(type, head_size, p, equal, 64, kHopper, kHopper);
        CHECK(cudnn_calls == (flash ? 2 : 0));
        CHECK(flash_calls == 0);
      }
    }
  }
}

TEST_CASE("Attention's backward on CUDA takes the kernels that forward took, whatever was switched since", "[unit]") {
  const Tensor equal = at::tensor({0, 64, 128, 192}, at::kInt);
  check_attention(at::kHalf, 64, 0.5, equal, 64, kHopper, kDeterministic);
  CHECK(cudnn_calls == 2);
  check_attention(at::kHalf, 64, 0.5, equal, 64, kDeterministic, kHopper);
  CHECK(flash_calls == 2);
}

TEST_CASE("Attention's backward on CUDA refuses what other kernels' forward gave", "[unit]") {
  const Tensor cu = at::tensor({0, 2, 5}, at::kInt), qkv = at::randn({5, 48}).to(at::kHalf);
  const auto [out, logsumexp, rng_state] = cuda::attention(kHopper, qkv, cu, 3, 2, 0.5, 1, 16, std::nullopt);
  const auto backward = [&, &result = out](const Tensor& of, const Tensor& sums, const Tensor& state, double p = 0.5) {
    return cuda::attention_backward(kHopper, result.to(of.scalar_type()), of, result.to(of.scalar_type()), sums, state,
                                    cu, 3, 2, p, 1, 16, std::nullopt);
  };
  const auto refused = [](const char* said) { return testing::Contains(c10::str("attention_backward: ", said)); };
  CHECK_THROWS_WITH(backward(qkv, logsumexp.unsqueeze(0), rng_state),
                    refused("forward's logsumexp has sizes [1, 2, 5]"));
  CHECK_THROWS_WITH(backward(qkv, logsumexp.narrow(1, 0, 4), rng_state),
                    refused("forward's logsumexp has sizes [2, 4]"));
  CHECK_THROWS_WITH(backward(qkv, logsumexp.t().contiguous().t(), rng_state), refused("forward's logsumexp"));
  CHECK_THROWS_WITH(backward(qkv, logsumexp.to(at::kHalf), rng_state),
                    refused("forward's logsumexp has sizes [2, 5] Half"));
  CHECK_THROWS_WITH(backward(qkv, logsumexp.to(at::kMeta), rng_state),
                    refused("forward's logsumexp has sizes [2, 5] Float on meta"));
  CHECK_THROWS_WITH(backward(qkv, logsumexp, rng_state.narrow(0, 0, 1)), refused("rng_state must be [2], got [1]"));
  const Tensor wide = qkv.to(at::kFloat);
  CHECK_THROWS_WITH(backward(wide, logsumexp, rng_state, 0.0), refused("forward's logsumexp has sizes [2, 5]"));
  CHECK_THROWS_WITH(backward(wide, at::zeros({2, 2, 2}), rng_state, 0.0),
                    refused("forward's logsumexp has sizes [2, 2, 2]"));
}

TEST_CASE("Attention on CUDA composes what LibTorch's kernels do not take", "[unit]") {
  const Tensor cu = at::tensor({0, 2, 5}, at::kInt), keys = at::arange(5, at::kLong);
  const Tensor qkv = at::randn({5, 18}, at::detail::createCPUGenerator(1), at::kDouble);
  flash_calls = efficient_calls = 0;
  const auto [out, logsumexp, rng_state] = cuda::attention(kAmpere, qkv, cu, 3, 2, 0.2, 1, 16, keys);
  const Tensor want = ops::attention(qkv, cu, 3, 2, {.p = 0.2, .seed = 1, .site = 16, .keys = keys});
  CHECK(testing::mismatch(out, want) == "");
  CHECK(cuda::attention_backward(kAmpere, out, qkv, out, logsumexp, rng_state, cu, 3, 2, 0.2, 1, 16, keys).sizes() ==
        qkv.sizes());
  const Tensor nothing = at::empty({0, 48}, at::kHalf), none = at::zeros({1}, at::kInt);
  const auto [empty, sums, state] = cuda::attention(kAmpere, nothing, none, 0, 2, 0.1, 1, 16, std::nullopt);
  CHECK(empty.sizes() == at::IntArrayRef({0, 16}));
  CHECK(cuda::attention_backward(kAmpere, empty, nothing, empty, sums, state, none, 0, 2, 0.1, 1, 16, std::nullopt)
            .numel() == 0);
  CHECK(flash_calls + efficient_calls == 0);
  CHECK_THROWS_WITH(cuda::attention(kAmpere, at::zeros({5, 48}, at::kHalf), cu, 0, 2, 0.0, 1, 16, std::nullopt),
                    testing::Contains("max_seqlen must be the longest of the 2 sequences, got 0"));
}

}  // namespace
}  // namespace bert
