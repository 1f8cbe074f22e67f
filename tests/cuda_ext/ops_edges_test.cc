// The CPU's kernels at the edges, against the compositions: sizes that no vector divides, no rows, and NaN.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "cuda_ext/dispatch/attention.h"
#include "cuda_ext/dispatch/bias_gelu.h"
#include "cuda_ext/dispatch/cross_entropy.h"
#include "cuda_ext/dispatch/dropout.h"
#include "cuda_ext/dispatch/embedding.h"
#include "cuda_ext/dispatch/layer_norm.h"
#include "cuda_ext/dispatch/linear.h"
#include "cuda_ext/dispatch/softmax.h"
#include "tests/support/ops_testing.h"

namespace bert {
namespace {

using at::Tensor;
using testing::mismatch;
using Tensors = std::vector<Tensor>;
using Op = std::function<Tensors(const Tensors&)>;

Tensor randn(at::IntArrayRef sizes, uint64_t seed) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed), at::kFloat);
}
Tensor integers(int64_t high, int64_t count, uint64_t seed) {
  return at::randint(high, {count}, at::detail::createCPUGenerator(seed), at::kLong);
}

Tensors list(const Tensor& tensor) { return {tensor}; }
template <class... Results>
Tensors list(const std::tuple<Results...>& results) {
  Tensors all = std::apply([](const auto&... tensors) { return Tensors{tensors...}; }, results);
  if (all.back().scalar_type() == at::kByte) all.pop_back();  // a kept mask, which the compositions lack
  return all;
}

constexpr double kDrop = 0.2, kEps = 1e-12;
constexpr int64_t kSeed = 11, kSite = 1040, kWords = 11, kPositions = 9, kTypes = 2;

struct Case {
  std::string name;
  Op kernel, composite;
  std::function<Tensors(int64_t tokens, int64_t hidden)> inputs;
};

// Both implementations of an expression that names operators as of::name.
#define BERT_CASE(name, inputs, expression)                                \
  Case {                                                                   \
    name,                                                                  \
        [](const Tensors& in) {                                            \
          namespace of = dispatch;                                         \
          return list(expression);                                         \
        },                                                                 \
        [](const Tensors& in) {                                            \
          namespace of = composite;                                        \
          return list(expression);                                         \
        },                                                                 \
        [](int64_t t, int64_t h) -> Tensors { return BERT_UNPACK inputs; } \
  }
#define BERT_UNPACK(...) \
  { __VA_ARGS__ }

Tensor keys(int64_t tokens) { return at::arange(tokens, at::kLong) + (int64_t{5} << 16); }
Tensor statistic(int64_t tokens, uint64_t seed) { return randn({tokens}, seed).abs() + 0.5; }
/// Two sequences.
Tensor ends(int64_t tokens) { return at::tensor({int64_t{0}, tokens / 3, tokens}, at::kLong).to(at::kInt); }

/// The cases. Tensors of fp32 are converted to the tested dtype, except statistics and sums, which stay fp32.
std::vector<Case> cases() {
  return {
      BERT_CASE("bias_gelu", (randn({t, h}, 1), randn({h}, 2)), of::bias_gelu(in[0], in[1], true)),
      BERT_CASE("bias_gelu_backward", (randn({t, h}, 1), randn({t, h}, 2), randn({h}, 3)),
                of::bias_gelu_backward(in[0], in[1], in[2], false)),
      BERT_CASE("layer_norm", (randn({t, h}, 1), randn({h}, 2), randn({h}, 3)),
                of::layer_norm(in[0], in[1], in[2], kEps)),
      BERT_CASE("layer_norm_backward",
                (randn({t, h}, 1), randn({t, h}, 2), statistic(t, 3).to(at::kDouble), statistic(t, 4).to(at::kDouble),
                 randn({h}, 5)),
                of::layer_norm_backward(in[0], in[1], in[2].to(at::kFloat), in[3].to(at::kFloat), in[4])),
      BERT_CASE(
          "bias_dropout_residual_layer_norm",
          (randn({t, h}, 1), randn({h}, 2), randn({t, h}, 3), randn({h}, 4), randn({h}, 5), keys(t)),
          of::bias_dropout_residual_layer_norm(in[0], in[1], in[2], in[3], in[4], kEps, kDrop, kSeed, kSite, in[5])),
      BERT_CASE("bias_dropout_residual_layer_norm_backward",
                (randn({t, h}, 1), randn({t, h}, 2), randn({h}, 3), randn({t, h}, 4), statistic(t, 5).to(at::kDouble),
                 statistic(t, 6).to(at::kDouble), randn({h}, 7), keys(t)),
                of::bias_dropout_residual_layer_norm_backward(in[0], in[1], in[2], in[3], in[4].to(at::kFloat),
                                                              in[5].to(at::kFloat), in[6], kDrop, kSeed, kSite, in[7],
                                                              composite::nothing_kept(in[0]))),
      BERT_CASE("embedding_layer_norm_dropout",
                (randn({kWords, h}, 1), randn({kPositions, h}, 2), randn({kTypes, h}, 3), randn({h}, 4), randn({h}, 5),
                 integers(kWords, t, 6), integers(kPositions, t, 7), integers(kTypes, t, 8), keys(t)),
                of::embedding_layer_norm_dropout(in[5], in[6], in[7], in[0], in[1], in[2], in[3], in[4], kEps, kDrop,
                                                 kSeed, kSite, in[8])),
      BERT_CASE("embedding_layer_norm_dropout_backward",
                (randn({t, h}, 1), randn({kWords, h}, 2), randn({kPositions, h}, 3), randn({kTypes, h}, 4),
                 statistic(t, 5).to(at::kDouble), statistic(t, 6).to(at::kDouble), randn({h}, 7),
                 integers(kWords, t, 8), integers(kPositions, t, 9), integers(kTypes, t, 10), keys(t)),
                of::embedding_layer_norm_dropout_backward(in[0], in[7], in[8], in[9], in[1], in[2], in[3],
                                                          in[4].to(at::kFloat), in[5].to(at::kFloat), in[6], kDrop,
                                                          kSeed, kSite, in[10], composite::nothing_kept(in[0]))),
      BERT_CASE("dropout", (randn({t, h}, 1), keys(t)), of::dropout(in[0], kDrop, kSeed, kSite, in[1])),
      BERT_CASE("cross_entropy", (randn({t, h + 3}, 1), integers(h, t, 2)),
                of::cross_entropy(in[0], in[1], in[0].size(1) - 3, std::nullopt)),
      BERT_CASE("linear", (randn({t, h}, 1), randn({33, h}, 2).div(16), randn({33}, 3)),
                of::linear(in[0], in[1], in[2])),
      BERT_CASE("linear_backward", (randn({t, 33}, 1), randn({t, h}, 2), randn({33, h}, 3).div(16)),
                of::linear_backward(in[0], in[1], in[2], std::array<bool, 3>{true, true, true})),
      BERT_CASE("attention", (randn({t, 3 * h}, 1), keys(t), ends(t)),
                of::attention(in[0], in[2], std::max<int64_t>(1, in[0].size(0)), 1, kDrop, kSeed, kSite, in[1])),
  };
}
#undef BERT_CASE
#undef BERT_UNPACK

/// Activations and parameters in `type`; integers, and tensors marked by fp64, unchanged.
Tensors converted(const Tensors& inputs, at::ScalarType type) {
  Tensors result;
  for (const Tensor& input : inputs) result.push_back(input.scalar_type() == at::kFloat ? input.to(type) : input);
  return result;
}

TEST_CASE("The CPU's kernels equal the compositions at sizes that no vector divides", "[unit]") {
  for (const Case& test : cases()) {
    for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const int64_t hidden : {3, 100, 257}) {
        for (const int64_t tokens : {0, 1, 6, 70}) {  // none, one, a group of rows and a part, more than a piece
          INFO(test.name << " " << type << " hidden " << hidden << " tokens " << tokens);
          const Tensors inputs = converted(test.inputs(tokens, hidden), type);
          const Tensors got = test.kernel(inputs), want = test.composite(inputs);
          REQUIRE(got.size() == want.size());
          for (size_t i = 0; i < got.size(); ++i) {
            INFO("result " << i);
            CHECK(got[i].scalar_type() == want[i].scalar_type());
            const double size = std::max(1.0, want[i].numel() ? want[i].abs().max().item<double>() : 0.0);
            // Compared in the inputs' dtype, because the compositions round on the way; sums have up to 257 terms.
            CHECK(mismatch(got[i].to(type), want[i].to(type), 4.0 * size) == "");
          }
        }
      }
    }
  }
}

TEST_CASE("Large products of any number of rows equal those in fp64", "[unit]") {
  constexpr int64_t kSize = 1100;  // 64 rows are enough for oneDNN
  const Tensor weight = randn({kSize, kSize}, 1).div(32), bias = randn({kSize}, 2);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t rows : {63, 64, 65, 80, 200}) {  // parts of a block, one, and some with a rest
      INFO(type << " rows " << rows);
      const Tensors in = converted({randn({rows, kSize}, 3), weight, bias, randn({rows, kSize}, 4)}, type);
      const auto wide = [&](int64_t i) { return in[static_cast<size_t>(i)].to(at::kDouble); };
      const auto [dx, dweight, dbias] = dispatch::linear_backward(in[3], in[0], in[1], {true, true, true});
      const Tensor product = wide(0).mm(wide(1).t());
      const std::vector<std::pair<Tensor, Tensor>> pairs = {{dispatch::linear(in[0], in[1], in[2]), product + wide(2)},
                                                            {dispatch::linear(in[0], in[1], {}), product},
                                                            {dx, wide(3).mm(wide(1))},
                                                            {dweight, wide(3).t().mm(wide(0))},
                                                            {dbias, wide(3).sum(0)}};
      for (size_t i = 0; i < pairs.size(); ++i) {
        INFO("result " << i);
        CHECK(mismatch(pairs[i].first, pairs[i].second.to(type), pairs[i].second.abs().max().item<double>()) == "");
      }
    }
  }
}

TEST_CASE("Linear layers in fp32 have the same bits with any number of threads", "[unit]") {
  const int before = at::get_num_threads();
  using Sizes = std::array<int64_t, 3>;
  for (const auto& [rows, columns, depth] : {Sizes{1030, 1100, 600},
                                             {1, 32, 32},
                                             {5, 384, 384},
                                             {7, 64, 16},
                                             {9, 384, 1536},
                                             {11, 1536, 384},
                                             {16, 384, 384},
                                             {100, 600, 600}}) {
    const Tensors in =
        converted({randn({rows, depth}, 3), randn({columns, depth}, 1), randn({rows, columns}, 4)}, at::kFloat);
    Tensors first;
    for (const int threads : {1, 2, 3, 8}) {
      CAPTURE(rows, columns, depth, threads);
      at::set_num_threads(threads);
      const auto [dx, dweight, dbias] = dispatch::linear_backward(in[2], in[0], in[1], {true, true, true});
      const Tensors results = {dispatch::linear(in[0], in[1], {}),
                               dispatch::linear(in[0], in[1], in[1].select(1, 0).contiguous()), dx, dweight, dbias};
      if (threads == 1) first = results;
      for (size_t i = 0; i < results.size(); ++i) {
        INFO("result " << i);
        CHECK(results[i].equal(first[i]));
      }
    }
  }
  at::set_num_threads(before);
}

TEST_CASE("A NaN goes through every kernel of the CPU", "[unit]") {
  for (const Case& test : cases()) {
    for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      constexpr int64_t kHidden = 100, kTokens = 6;
      const Tensors clean = converted(test.inputs(kTokens, kHidden), type);
      for (size_t which = 0; which < clean.size(); ++which) {
        if (clean[which].scalar_type() != type) continue;
        Tensors inputs = clean;
        inputs[which] = clean[which].clone();
        // NaN in the part of a row that fills no vector.
        inputs[which].view(-1)[std::min(kHidden, clean[which].numel()) - 1] = NAN;
        const Tensors got = test.kernel(inputs), want = test.composite(inputs);
        bool found = false;
        for (size_t i = 0; i < got.size(); ++i) {
          INFO(test.name << " " << type << " input " << which << " result " << i);
          CHECK(at::equal(got[i].isnan(), want[i].isnan()));
          found = found || got[i].isnan().any().item<bool>();
        }
        if (test.name.rfind("embedding", 0) != 0) CHECK(found);  // an embedding's NaN may be in a row without a token
      }
    }
  }
}

}  // namespace
}  // namespace bert
