// Attention on CUDA as far as it needs no device: the choice of LibTorch's kernels, what backward refuses, and the
// composition. cuda_test.cc runs the kernels.
#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <utility>
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

constexpr AttentionPlatform kAmpere{.compute_capability = 80, .cudnn_version = 91900},
    kHopper{.compute_capability = 90, .cudnn_version = 91900};

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

TEST_CASE("The table of attention's backends has a reason in each row, and flash for what a run trains on", "[unit]") {
  for (const cuda::AttentionRow& row : cuda::kAttentionRows) {
    const std::string reason = row.reason;
    CHECK((reason.starts_with("measured: ") || reason.starts_with("argued: ")));
    // cuDNN gets no mask (pytorch/pytorch#196678), so it cannot take unequal lengths.
    if (row.backend == AttentionBackend::kCudnn) CHECK_FALSE(row.unequal_lengths);
  }
  constexpr auto kCudnn = AttentionBackend::kCudnn, kFlash = AttentionBackend::kFlash,
                 kEfficient = AttentionBackend::kEfficient, kComposite = AttentionBackend::kComposite;
  struct Length {
    int64_t tokens, sequences, longest;
  };
  const std::vector<Length> lengths = {{4096, 32, 128}, {16384, 32, 512}, {3200, 32, 100}, {8128, 32, 512}};
  const std::vector<double> dropouts = {0.0, 0.125, 0.1};
  // Rows: dropout; columns: 128, 512, 100, and lengths that differ.
  using Table = std::vector<std::vector<AttentionBackend>>;
  const Table in_evaluation = {{kCudnn, kCudnn, kFlash, kFlash},
                               {kCudnn, kCudnn, kFlash, kFlash},
                               {kFlash, kFlash, kFlash, kFlash}},
              in_training(3, std::vector(4, kFlash)),
              fp32 = {std::vector(4, kEfficient), std::vector(4, kComposite), std::vector(4, kComposite)},
              fp64(3, std::vector(4, kComposite));
  for (const bool deterministic : {false, true}) {
    const Table& low = deterministic ? in_training : in_evaluation;
    for (const auto& [type, table] : std::vector<std::pair<at::ScalarType, const Table*>>{
             {at::kBFloat16, &low}, {at::kHalf, &low}, {at::kFloat, &fp32}, {at::kDouble, &fp64}}) {
      for (size_t dropout = 0; dropout < dropouts.size(); ++dropout) {
        for (size_t i = 0; i < lengths.size(); ++i) {
          INFO(type << ", dropout " << dropouts[dropout] << ", lengths of column " << i);
          AttentionPlatform platform = kHopper;
          platform.deterministic = deterministic;
          CHECK(cuda::choose_attention({.dtype = type,
                                        .tokens = lengths[i].tokens,
                                        .sequences = lengths[i].sequences,
                                        .max_seqlen = lengths[i].longest,
                                        .head_size = 64,
                                        .p = dropouts[dropout]},
                                       platform)
                    .backend == (*table)[dropout][i]);
        }
      }
    }
  }
}

TEST_CASE("Attention's backward on CUDA refuses what other kernels' forward gave", "[unit]") {
  const Tensor cu = at::tensor({0, 2, 5}, at::kInt), qkv = at::zeros({5, 48}, at::kHalf);
  const Tensor logsumexp = at::zeros({2, 5}), rng_state = at::zeros({2}, at::kUInt64);  // as flash attention gives them
  const auto backward = [&](const Tensor& of, const Tensor& sums, const Tensor& state, double p = 0.5) {
    const Tensor out = at::zeros({5, 16}, of.scalar_type());
    return cuda::attention_backward(kHopper, out, of, out, sums, state, cu, 3, 2, p, 1, 16, std::nullopt);
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
  CHECK_THROWS_WITH(cuda::attention(kAmpere, at::zeros({5, 48}, at::kHalf), cu, 0, 2, 0.0, 1, 16, std::nullopt),
                    testing::Contains("max_seqlen must be the longest of the 2 sequences, got 0"));
}

}  // namespace
}  // namespace bert
