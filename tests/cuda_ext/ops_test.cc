// The operators against plain ATen expressions in fp32 and double, and their derivatives against differences.
#include "cuda_ext/ops.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cuda_ext/padded_linear.h"
#include "cuda_ext/simd/kernels.h"
#include "tests/support/allocations.h"
#include "tests/support/op_calls.h"
#include "tests/support/ops_testing.h"

namespace bert {
namespace {

using at::Tensor;
using testing::compare;
using testing::Contains;
using testing::drop;
using testing::evaluate;
using testing::gradcheck;
using testing::integers;
using testing::keys_of;
using testing::kTypes;
using testing::kWidths;
using testing::mismatch;
using testing::Op;
using testing::randn;
using testing::Result;
using testing::scalar_mask;
using testing::Tensors;

TEST_CASE("bias_gelu equals its definition", "[unit]") {
  for (const bool tanh : {true, false}) {
    const Op op = [&](const Tensors& in) {
      return ops::bias_gelu(in[0], in[1], tanh ? ops::Gelu::kTanh : ops::Gelu::kErf);
    };
    const Op plain = [&](const Tensors& in) {
      const Tensor u = in[0] + in[1];
      const Tensor inner =
          tanh ? at::tanh(std::sqrt(2 / M_PI) * (u + 0.044715 * u * u * u)) : at::erf(u / std::sqrt(2.0));
      return 0.5 * u * (1 + inner);
    };
    for (const auto type : kTypes) {
      for (const int64_t width : kWidths) {
        for (const int64_t tokens : {0, 1, 5}) {
          INFO(type << " width " << width << " tokens " << tokens << " tanh " << tanh);
          compare(op, plain, {3 * randn({tokens, width}, 1), randn({width}, 2)}, type);
        }
      }
    }
    gradcheck(op, {randn({3, 5}, 3), randn({5}, 4)});
    const Tensor extreme =
        at::tensor({-INFINITY, -100.0, -30.0, 0.0, 30.0, 100.0, static_cast<double>(NAN)}).to(at::kFloat).view({1, 7});
    const Tensor y = ops::bias_gelu(extreme, at::zeros({7}), tanh ? ops::Gelu::kTanh : ops::Gelu::kErf)[0];
    CHECK(y[1].item<float>() == 0.0F);
    CHECK(y[3].item<float>() == 0.0F);
    CHECK(y[5].item<float>() == 100.0F);
    CHECK(std::isnan(y[6].item<float>()));
  }
}

Tensor plain_layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  const Tensor centred = x - x.mean(1, true);
  return centred / (centred.square().mean(1, true) + eps).sqrt() * gamma + beta;
}

TEST_CASE("layer_norm equals its definition", "[unit]") {
  const Op op = [](const Tensors& in) { return ops::layer_norm(in[0], in[1], in[2], 1e-12); };
  const Op plain = [](const Tensors& in) { return plain_layer_norm(in[0], in[1], in[2], 1e-12); };
  for (const auto type : kTypes) {
    for (const int64_t width : kWidths) {
      if (width == 1) continue;  // the variance is 0: eps alone decides
      for (const int64_t tokens : {0, 1, 5, 67}) {
        INFO(type << " width " << width << " tokens " << tokens);
        compare(op, plain, {2 * randn({tokens, width}, 1) + 3, randn({width}, 2), randn({width}, 3)}, type,
                4.0);  // 1 / std amplifies rounding
      }
    }
  }
  gradcheck(op, {randn({3, 5}, 3), randn({5}, 4), randn({5}, 5)});
}

TEST_CASE("Every layer norm adds eps to the variance, also to that of a constant row", "[unit]") {
  constexpr double kEps = 0.1;
  const auto constant_row = [](Tensor x) { return x.select(0, 0).fill_(0.75), x; };
  const Tensor ids = at::tensor({int64_t{0}, int64_t{1}, int64_t{1}}), zeros = at::zeros_like(ids);
  for (const auto type : kTypes) {
    for (const int64_t width : kWidths) {
      INFO(type << " width " << width);
      const Tensor gamma = randn({width}, 2), beta = randn({width}, 3);
      compare([](const Tensors& in) { return ops::layer_norm(in[0], in[1], in[2], kEps); },
              [](const Tensors& in) { return plain_layer_norm(in[0], in[1], in[2], kEps); },
              {constant_row(randn({3, width}, 1)), gamma, beta}, type, 4.0);  // sums of gradients over rows
      compare(
          [](const Tensors& in) {
            return ops::bias_dropout_residual_layer_norm(in[0], in[1], in[2], in[3], in[4], kEps, {});
          },
          [](const Tensors& in) { return plain_layer_norm(in[0] + in[1] + in[2], in[3], in[4], kEps); },
          {constant_row(randn({3, width}, 1)), at::full({width}, 0.5, at::kDouble), constant_row(randn({3, width}, 4)),
           gamma, beta},
          type, 4.0);  // likewise
      compare(
          [&](const Tensors& in) {
            return ops::embedding_layer_norm_dropout(ids, zeros, zeros, {in[0], in[1], in[2]}, in[3], in[4], kEps, {});
          },
          [&](const Tensors& in) {
            const Tensor sum = in[0].index_select(0, ids) + in[1].index_select(0, zeros) + in[2].index_select(0, zeros);
            return plain_layer_norm(sum, in[3], in[4], kEps);
          },
          {constant_row(randn({2, width}, 5)), constant_row(randn({1, width}, 6)), constant_row(randn({1, width}, 7)),
           gamma, beta},
          type, 8.0);  // likewise, and over equal ids
    }
  }
}

TEST_CASE("bias_dropout_residual_layer_norm equals its definition", "[unit]") {
  for (const double p : {0.0, 0.2}) {
    const Op op = [&](const Tensors& in) {
      return ops::bias_dropout_residual_layer_norm(in[0], in[1], in[2], in[3], in[4], 1e-12, drop(p, in[0].size(0)));
    };
    const Op plain = [&](const Tensors& in) {
      const Tensor mask = scalar_mask(p, keys_of(in[0].size(0)), in[0].size(1));
      return plain_layer_norm((in[0] + in[1]) * mask + in[2], in[3], in[4], 1e-12);
    };
    for (const auto type : kTypes) {
      for (const int64_t width : kWidths) {
        if (width == 1) continue;
        for (const int64_t tokens : {0, 1, 5}) {
          INFO(type << " width " << width << " tokens " << tokens << " p " << p);
          compare(op, plain,
                  {randn({tokens, width}, 1), randn({width}, 2), randn({tokens, width}, 3), randn({width}, 4),
                   randn({width}, 5)},
                  type, 4.0);  // 1 / std amplifies rounding
        }
      }
    }
    gradcheck(op, {randn({3, 5}, 1), randn({5}, 2), randn({3, 5}, 3), randn({5}, 4), randn({5}, 5)});
  }
}

TEST_CASE("embedding_layer_norm_dropout equals its definition", "[unit]") {
  for (const double p : {0.0, 0.2}) {
    const Op op = [&](const Tensors& in) {
      return ops::embedding_layer_norm_dropout(in[0], in[1], in[2], {in[3], in[4], in[5]}, in[6], in[7], 1e-12,
                                               drop(p, in[0].size(0)));
    };
    const Op plain = [&](const Tensors& in) {
      const Tensor sum = in[3].index_select(0, in[0]) + in[4].index_select(0, in[1]) + in[5].index_select(0, in[2]);
      return plain_layer_norm(sum, in[6], in[7], 1e-12) * scalar_mask(p, keys_of(in[0].size(0)), sum.size(1));
    };
    for (const auto type : kTypes) {
      for (const int64_t width : kWidths) {
        if (width == 1) continue;
        for (const int64_t tokens : {0, 1, 37}) {
          INFO(type << " width " << width << " tokens " << tokens << " p " << p);
          compare(op, plain,
                  {integers(11, tokens, 1), integers(9, tokens, 2), integers(2, tokens, 3), randn({11, width}, 4),
                   randn({9, width}, 5), randn({2, width}, 6), randn({width}, 7), randn({width}, 8)},
                  type, 4.0);  // 1 / std amplifies rounding
        }
      }
    }
    gradcheck(op, {integers(4, 5, 1), integers(3, 5, 2), integers(2, 5, 3), randn({4, 5}, 4), randn({3, 5}, 5),
                   randn({2, 5}, 6), randn({5}, 7), randn({5}, 8)});
  }
}

TEST_CASE("dropout equals its definition", "[unit]") {
  for (const double p : {0.0, 0.2}) {
    const Op op = [&](const Tensors& in) { return ops::dropout(in[0], drop(p, in[0].size(0))); };
    const Op plain = [&](const Tensors& in) {
      return in[0] *
             scalar_mask(p, keys_of(in[0].size(0)), in[0].size(0) == 0 ? in[0].size(1) : in[0].numel() / in[0].size(0))
                 .view(in[0].sizes());
    };
    for (const auto type : kTypes) {
      for (const int64_t width : kWidths) {
        for (const int64_t tokens : {0, 1, 5}) {
          INFO(type << " width " << width << " tokens " << tokens << " p " << p);
          compare(op, plain, {randn({tokens, width}, 1)}, type);
        }
      }
      compare(op, plain, {randn({3, 4, 5}, 1)}, type);  // a row is all elements of a token
    }
    gradcheck(op, {randn({3, 5}, 1)});
  }
}

/// Attention one sequence and one head at a time.
Tensor plain_attention(const Tensor& qkv, const std::vector<int32_t>& lengths, int64_t heads, double p) {
  const int64_t hidden = qkv.size(1) / 3, head_size = hidden / heads;
  Tensors rows;
  int64_t start = 0;
  for (const int32_t length : lengths) {
    Tensors columns;
    for (int64_t head = 0; head < heads; ++head) {
      const auto part = [&](int64_t i) {
        return qkv.narrow(0, start, length).narrow(1, i * hidden + head * head_size, head_size);
      };
      const Tensor mask = scalar_mask(p, keys_of(qkv.size(0)).narrow(0, start, length), length, 1040 + head);
      columns.push_back(at::mm(
          at::softmax(at::mm(part(0), part(1).t()) / std::sqrt(static_cast<double>(head_size)), 1) * mask, part(2)));
    }
    rows.push_back(at::cat(columns, 1));
    start += length;
  }
  return at::cat(rows);
}

TEST_CASE("attention equals its definition on packed sequences", "[unit]") {
  const std::vector<std::vector<int32_t>> batches = {{1}, {5, 0, 3}, {64, 17, 1}, {130, 33}};
  for (const double p : {0.0, 0.3}) {
    for (const auto& lengths : batches) {
      std::vector<int32_t> cumulative = {0};
      for (const int32_t length : lengths) cumulative.push_back(cumulative.back() + length);
      const Tensor cu = at::tensor(cumulative, at::kInt);
      const int64_t tokens = cumulative.back();
      for (const auto& [heads, head_size] : std::vector<std::pair<int64_t, int64_t>>{{2, 64}, {3, 8}, {2, 35}}) {
        const Op op = [&, heads = heads](const Tensors& in) {
          return ops::attention(in[0], cu, *std::max_element(lengths.begin(), lengths.end()), heads, drop(p, tokens));
        };
        const Op plain = [&, heads = heads](const Tensors& in) { return plain_attention(in[0], lengths, heads, p); };
        for (const auto type : kTypes) {
          INFO(type << " tokens " << tokens << " heads " << heads << " head size " << head_size << " p " << p);
          compare(op, plain, {randn({tokens, 3 * heads * head_size}, 1)}, type,
                  2.0);  // two products, each of rounded inputs
        }
      }
    }
    const Tensor cu = at::tensor({0, 2, 5}, at::kInt);
    gradcheck([&](const Tensors& in) { return ops::attention(in[0], cu, 3, 2, drop(p, 5)); }, {randn({5, 18}, 1)});
  }
}

TEST_CASE("Attention takes memory for its tokens, not for their square", "[unit]") {
  constexpr int64_t kTokens = 4096, kHeads = 2, kHeadSize = 16;
  const Tensor cu = at::tensor({0, static_cast<int>(kTokens)}, at::kInt);
  const Tensor qkv = randn({kTokens, 3 * kHeads * kHeadSize}, 1).to(at::kFloat).requires_grad_(true);
  const auto record =
      testing::allocations_of([&] { ops::attention(qkv, cu, kTokens, kHeads, drop(0.1, kTokens)).sum().backward(); });
  CHECK(record->peak > 0);
  const int64_t scores = kTokens * kTokens * 4;  // of one head
  CHECK(record->peak < scores / 4);
  CHECK(4 * simd::attention_scratch(kTokens, kHeadSize) < scores / 4);  // the memory that a thread keeps
}

TEST_CASE("linear and qkv_linear equal x W^T + b", "[unit]") {
  const Op linear = [](const Tensors& in) { return ops::linear(in[0], in[1], in[2]); };
  const Op qkv = [](const Tensors& in) { return ops::qkv_linear(in[0], {in[1], in[2], in[3], in[4], in[5], in[6]}); };
  const Op plain = [](const Tensors& in) { return at::mm(in[0], in[1].t()) + in[2]; };
  const Op plain_qkv = [](const Tensors& in) {
    return at::mm(in[0], at::cat({in[1], in[2], in[3]}).t()) + at::cat({in[4], in[5], in[6]});
  };
  for (const auto type : kTypes) {
    compare(linear, plain, {randn({600, 128}, 1), randn({1024, 128}, 2), randn({1024}, 3)}, type,
            32.0);  // sums of up to 1,024 products; large enough for oneDNN
    for (const int64_t tokens : {0, 1, 5, 64}) {
      for (const int64_t in_features : {1, 70, 128}) {
        for (const int64_t out_features : {1, 2, 96}) {
          INFO(type << " " << tokens << " x " << in_features << " -> " << out_features);
          compare(linear, plain,
                  {randn({tokens, in_features}, 1), randn({out_features, in_features}, 2), randn({out_features}, 3)},
                  type,
                  8.0);  // sums of up to 128 products
        }
        const auto weight = [&](uint64_t seed) { return randn({in_features, in_features}, seed); };
        const auto bias = [&](uint64_t seed) { return randn({in_features}, seed); };
        compare(qkv, plain_qkv,
                {randn({tokens, in_features}, 1), weight(2), weight(3), weight(4), bias(5), bias(6), bias(7)}, type,
                8.0);  // sums of up to 128 products
      }
    }
  }
  gradcheck(linear, {randn({3, 4}, 1), randn({2, 4}, 2), randn({2}, 3)});
  gradcheck(qkv, {randn({3, 4}, 1), randn({4, 4}, 2), randn({4, 4}, 3), randn({4, 4}, 4), randn({4}, 5), randn({4}, 6),
                  randn({4}, 7)});
  gradcheck([](const Tensors& in) { return ops::padded_linear(in[0], in[1], in[2], 5); },
            {randn({3, 4}, 1), randn({2, 4}, 2), randn({2}, 3)});
}

TEST_CASE("linear goes to the library that Note [GEMM backends of the CPU] names", "[unit]") {
  if (!at::hasMKLDNN()) BERT_SKIP("LibTorch without oneDNN");
  const auto has_bf16 = c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_is_mkldnn_bf16_supported", "");
  const bool bf16 = has_bf16.typed<bool()>().call();
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t tokens : {66, 67}) {  // 70 million multiplications from 67 on; oneDNN has all products of bf16
      INFO(type << " " << tokens);
      const Tensor x = randn({tokens, 1024}, 1).to(type).requires_grad_(true),
                   weight = randn({1024, 1024}, 2).to(type).requires_grad_(true),
                   bias = randn({1024}, 3).to(type).requires_grad_(true);
      Tensor y;
      const auto forward = testing::calls_of([&] { y = ops::linear(x, weight, bias); });
      const auto backward = testing::calls_of([&] { y.backward(at::ones_like(y)); });
      const bool large = tokens == 67;
      const bool in_fp32 = type != at::kBFloat16 || !bf16;
      const bool one_dnn = large || !in_fp32;
      CHECK(forward.count("mkldnn::_linear_pointwise") == (one_dnn ? 1 : 0));
      CHECK(forward.count("aten::linear") == (one_dnn ? 0 : 1));
      CHECK(backward.count("aten::mm") == (one_dnn && bf16 ? 0 : 1));
    }
  }
}

TEST_CASE("qkv_linear copies nothing when the weights are neighbours", "[unit]") {
  const Tensor weight = randn({24, 8}, 1).to(at::kFloat), bias = randn({24}, 2).to(at::kFloat),
               x = randn({5, 8}, 3).to(at::kFloat);
  const auto leaf = [](const Tensor& t) { return t.detach().requires_grad_(true); };
  const auto w = weight.chunk(3), b = bias.chunk(3);
  const ops::QkvParameters joined{leaf(w[0]), leaf(w[1]), leaf(w[2]), leaf(b[0]), leaf(b[1]), leaf(b[2])};
  const Tensor y = ops::qkv_linear(x, joined);
  CHECK(at::equal(y, ops::linear(x, weight, bias)));
  y.sum().backward();
  const Tensor& dquery = joined.query_weight.grad();
  CHECK(joined.key_weight.grad().is_alias_of(dquery));
  CHECK(joined.value_weight.grad().is_alias_of(dquery));
}

TEST_CASE("A sequence's results do not depend on what it is packed with", "[unit]") {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const int64_t heads = 2, hidden = 128;
    const Tensor qkv = randn({60, 3 * hidden}, 1).to(type), keys = keys_of(60);
    const auto run = [&](int64_t start, const std::vector<int32_t>& cumulative) {
      const int64_t tokens = cumulative.back();
      return ops::attention(qkv.narrow(0, start, tokens), at::tensor(cumulative, at::kInt), 40, heads,
                            {.p = 0.2, .seed = 1, .site = 16, .keys = keys.narrow(0, start, tokens)});
    };
    const Tensor packed = run(0, {0, 20, 53, 60}), alone = run(20, {0, 33});
    CHECK(at::equal(packed.narrow(0, 20, 33), alone));
  }
}

TEST_CASE("Under autocast the products run in bf16 and the parameters stay fp32", "[unit]") {
  const auto parameter = [](at::IntArrayRef sizes, uint64_t seed) {
    return randn(sizes, seed).to(at::kFloat).mul(0.1).requires_grad_(true);
  };
  const Tensor weight = parameter({16, 8}, 1), bias = parameter({16}, 2), gamma = parameter({16}, 3),
               beta = parameter({16}, 4);
  const Tensor x = randn({5, 8}, 5).to(at::kFloat), labels = integers(16, 5, 6);
  const auto forward = [&] {
    const Tensor h = ops::bias_gelu(ops::linear(x, weight, Tensor()), bias, ops::Gelu::kTanh);
    const Tensor y = ops::bias_dropout_residual_layer_norm(h, bias, at::ones({5, 16}), gamma, beta, 1e-12, {});
    return std::pair(y, ops::cross_entropy(y, labels, 16));
  };
  const auto [exact, exact_loss] = forward();
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::increment_nesting();
  const auto [y, loss] = forward();
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  CHECK(exact.scalar_type() == at::kFloat);
  CHECK(y.scalar_type() == at::kBFloat16);
  CHECK(loss.scalar_type() == at::kFloat);
  CHECK(mismatch(y, exact, 4.0) == "");  // rounded at three places
  loss.backward();
  const Tensor got = weight.grad().clone();
  weight.mutable_grad().zero_();
  exact_loss.backward();
  CHECK(got.scalar_type() == at::kFloat);
  CHECK(mismatch(got.to(at::kBFloat16), weight.grad()) == "");
}

TEST_CASE("Every instruction set of this machine gives close results", "[unit]") {
  const std::string best = simd::kernels().name;
  const Tensor cu = at::tensor({0, 20, 53, 60}, at::kInt);
  const std::vector<std::pair<Op, Tensors>> cases = {
      {[](const Tensors& in) { return ops::bias_gelu(in[0], in[1], ops::Gelu::kTanh); },
       {randn({60, 70}, 1), randn({70}, 2)}},
      {[](const Tensors& in) { return ops::bias_gelu(in[0], in[1], ops::Gelu::kErf); },
       {randn({60, 70}, 1), randn({70}, 2)}},
      {[](const Tensors& in) {
         return ops::bias_dropout_residual_layer_norm(in[0], in[1], in[2], in[3], in[4], 1e-12, drop(0.2, 60));
       },
       {randn({60, 70}, 1), randn({70}, 2), randn({60, 70}, 3), randn({70}, 4), randn({70}, 5)}},
      {[](const Tensors& in) { return ops::dropout(in[0], drop(0.5, 60)); }, {randn({60, 70}, 1)}},
      {[&](const Tensors& in) { return ops::attention(in[0], cu, 33, 2, drop(0.2, 60)); },
       {randn({60, 3 * 2 * 35}, 1)}},
      {[&](const Tensors& in) { return ops::masked_softmax_dropout(in[0], cu, 0.3, drop(0.2, 60)); },
       {randn({3, 2, 33, 35}, 1)}},
      {[](const Tensors& in) { return ops::cross_entropy(in[0], integers(67, 60, 1), 67); }, {randn({60, 70}, 1)}}};
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto& [op, inputs] : cases) {
      REQUIRE(simd::choose_kernels("plain"));
      const Result plain = evaluate(op, inputs, type);
      for (const char* name : {"avx2", "avx512", "avx512_bf16"}) {
        if (!simd::choose_kernels(name)) continue;
        const Result other = evaluate(op, inputs, type);
        CHECK(mismatch(other.y, plain.y) == "");
        for (size_t i = 0; i < plain.grads.size(); ++i)
          CHECK(mismatch(other.grads[i], plain.grads[i], 4.0) == "");  // sums of 60
      }
    }
  }
  REQUIRE(simd::choose_kernels(best.c_str()));
}

TEST_CASE("Results do not depend on the number of threads", "[unit]") {
  const Tensor cu = at::tensor({0, 130, 300}, at::kInt);
  const Op op = [&](const Tensors& in) {
    const Tensor x = ops::embedding_layer_norm_dropout(in[0], in[1], in[2], {in[3], in[4], in[5]}, in[6], in[7], 1e-12,
                                                       drop(0.1, 300));
    const Tensor y =
        ops::bias_gelu(ops::attention(at::cat({x, x, x}, 1), cu, 170, 2, drop(0.1, 300)), in[8], ops::Gelu::kTanh);
    return ops::bias_dropout_residual_layer_norm(y, in[8], x, in[6], in[7], 1e-12, drop(0.1, 300));
  };
  const Tensors inputs = {integers(50, 300, 1), integers(170, 300, 2), integers(2, 300, 3),
                          randn({50, 128}, 4),  randn({170, 128}, 5),  randn({2, 128}, 6),
                          randn({128}, 7),      randn({128}, 8),       randn({128}, 9)};
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Result one = evaluate(op, inputs, at::kFloat);
  at::set_num_threads(3);
  const Result three = evaluate(op, inputs, at::kFloat);
  at::set_num_threads(threads);
  CHECK(at::equal(one.y, three.y));
  for (size_t i = 0; i < one.grads.size(); ++i) CHECK(at::equal(one.grads[i], three.grads[i]));
}

TEST_CASE("Operators refuse what does not fit and say what they got", "[unit]") {
  const Tensor x = at::zeros({4, 6}), six = at::zeros({6}), five = at::zeros({5}), ids = at::zeros({4}, at::kLong);
  CHECK_THROWS_WITH(ops::bias_gelu(x, five, ops::Gelu::kTanh), Contains("bias must be [6]") && Contains("got [5]"));
  CHECK_THROWS_WITH(ops::bias_gelu(x.t(), at::zeros({4}), ops::Gelu::kTanh),
                    Contains("contiguous") && Contains("[1, 6]"));
  CHECK_THROWS_WITH(ops::layer_norm(x, six, five, 1e-5), Contains("beta"));
  CHECK_THROWS_WITH(ops::layer_norm(x, six, six, 0.0), Contains("eps"));
  CHECK_THROWS_WITH(ops::layer_norm(ids, six, six, 1e-5), Contains("x must be [-1, -1]"));
  CHECK_THROWS_WITH(ops::bias_dropout_residual_layer_norm(x, six, at::zeros({3, 6}), six, six, 1e-5, {}),
                    Contains("residual"));
  CHECK_THROWS_WITH(ops::dropout(x, {.p = 1.0, .keys = ids}), Contains("[0, 1)"));
  CHECK_THROWS_WITH(ops::dropout(x, {.p = 0.5, .keys = Tensor()}), Contains("keys") && Contains("undefined"));
  CHECK_THROWS_WITH(ops::linear(x, at::zeros({3, 5}), Tensor()), Contains("weight must be [-1, 6]"));
  CHECK_THROWS_WITH(ops::attention(x, at::zeros({2}, at::kInt), 4, 4, {}), Contains("num_heads = 4"));
  CHECK_THROWS_WITH(ops::attention(x, ids, 4, 2, {}), Contains("cu_seqlens") && Contains("Int"));
}

}  // namespace
}  // namespace bert
