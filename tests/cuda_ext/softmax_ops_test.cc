// Masked softmax and cross entropy against plain ATen expressions, and their derivatives against differences.
#include <ATen/ATen.h>

#include <array>
#include <cmath>
#include <vector>

#include "cuda_ext/dispatch/attention.h"
#include "cuda_ext/dispatch/cross_entropy.h"
#include "cuda_ext/ops.h"
#include "cuda_ext/simd/kernels.h"
#include "tests/support/ops_testing.h"

namespace bert {
namespace {

using at::Tensor;
using testing::Approx;
using testing::compare;
using testing::Contains;
using testing::drop;
using testing::gradcheck;
using testing::integers;
using testing::keys_of;
using testing::kTypes;
using testing::mismatch;
using testing::Op;
using testing::randn;
using testing::scalar_mask;
using testing::Tensors;

/// Lengths as cu_seqlens.
Tensor ends_of(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> ends = {0};
  for (const int32_t length : lengths) ends.push_back(ends.back() + length);
  return at::tensor(ends, at::kInt);
}

/// One sequence and one head at a time, on its own part of the scores; zeros around it.
Tensor plain_masked_softmax(const Tensor& scores, const std::vector<int32_t>& lengths, double scale, double p) {
  Tensors sequences;
  int64_t start = 0;
  for (size_t b = 0; b < lengths.size(); ++b) {
    const int64_t length = lengths[b];
    Tensors heads;
    for (int64_t head = 0; head < scores.size(1); ++head) {
      const Tensor part = scores[static_cast<int64_t>(b)][head].narrow(0, 0, length).narrow(1, 0, length);
      const Tensor mask = scalar_mask(p, keys_of(start + length).narrow(0, start, length), length, 1040 + head);
      heads.push_back(at::constant_pad_nd(at::softmax(part * scale, 1) * mask,
                                          {0, scores.size(3) - length, 0, scores.size(2) - length}));
    }
    sequences.push_back(at::stack(heads));
    start += length;
  }
  return at::stack(sequences);
}

TEST_CASE("masked_softmax_dropout equals its definition", "[unit]") {
  struct Case {
    std::vector<int32_t> lengths;
    int64_t heads, queries, columns;
  };
  for (const double p : {0.0, 0.3}) {
    for (const Case& c :
         std::vector<Case>{{{1}, 1, 1, 1}, {{5, 0, 3}, 2, 5, 8}, {{64, 17}, 3, 64, 64}, {{130, 33}, 2, 131, 136}}) {
      const Tensor ends = ends_of(c.lengths);
      const int64_t tokens = ends[-1].item<int64_t>();
      const Op op = [&](const Tensors& in) { return ops::masked_softmax_dropout(in[0], ends, 0.6, drop(p, tokens)); };
      const Op plain = [&](const Tensors& in) { return plain_masked_softmax(in[0], c.lengths, 0.6, p); };
      for (const auto type : kTypes) {
        INFO(type << " tokens " << tokens << " heads " << c.heads << " columns " << c.columns << " p " << p);
        compare(op, plain, {2 * randn({static_cast<int64_t>(c.lengths.size()), c.heads, c.queries, c.columns}, 1)},
                type);
      }
    }
    const Tensor ends = ends_of({2, 3, 0});
    gradcheck([&](const Tensors& in) { return ops::masked_softmax_dropout(in[0], ends, 0.6, drop(p, 5)); },
              {randn({3, 2, 3, 4}, 1)});
  }
}

TEST_CASE("masked_softmax_dropout does not see its padding, and lets NaN through elsewhere", "[unit]") {
  for (const auto type : kTypes) {
    Tensor scores = at::full({2, 1, 3, 4}, NAN, at::TensorOptions().dtype(type));
    scores.select(0, 0).narrow(1, 0, 2).narrow(2, 0, 2).zero_();
    scores.requires_grad_(true);
    const Tensor y = ops::masked_softmax_dropout(scores, ends_of({2, 1}), 1.0, {});
    y.backward(at::full(y.sizes(), NAN, y.options()).masked_fill_(y.detach().gt(0), 1.0));
    const Tensor want = at::zeros({3, 4}, at::kDouble);
    want.narrow(0, 0, 2).narrow(1, 0, 2).fill_(0.5);
    CHECK(at::equal(y[0][0].to(at::kDouble), want));
    CHECK(at::equal(scores.grad()[0].to(at::kDouble), at::zeros({1, 3, 4}, at::kDouble)));
    CHECK(std::isnan(y[1][0][0][0].item<double>()));
    CHECK(y[1][0].flatten().narrow(0, 1, 11).abs().sum().item<double>() == 0.0);
    // The gradient of a real score may be NaN, that of padding is 0.
    CHECK(scores.grad()[1].flatten().narrow(0, 1, 11).abs().sum().item<double>() == 0.0);
  }
}

TEST_CASE("Attention keeps NaN in the sequence that has it", "[unit]") {
  const Tensor cu = ends_of({3, 9, 4, 0}), keys = keys_of(16);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const double p : {0.0, 0.25}) {
      const Tensor qkv = randn({16, 3 * 2 * 8}, 1).to(type), grad = randn({16, 2 * 8}, 2).to(type);
      qkv.narrow(0, 3, 9).fill_(NAN);
      for (const bool composed : {false, true}) {
        INFO(type << " p " << p << " composed " << composed);
        const auto [out, logsumexp, rng_state] = composed ? composite::attention(qkv, cu, 9, 2, p, 7, 0, keys)
                                                          : dispatch::attention(qkv, cu, 9, 2, p, 7, 0, keys);
        const Tensor dqkv =
            composed ? composite::attention_backward(grad, qkv, out, logsumexp, rng_state, cu, 9, 2, p, 7, 0, keys)
                     : dispatch::attention_backward(grad, qkv, out, logsumexp, rng_state, cu, 9, 2, p, 7, 0, keys);
        for (const Tensor& result : {out, dqkv}) {
          CHECK(result.narrow(0, 3, 9).isnan().any().item<bool>());
          CHECK(result.narrow(0, 0, 3).isfinite().all().item<bool>());
          CHECK(result.narrow(0, 12, 4).isfinite().all().item<bool>());
        }
      }
    }
  }
}

TEST_CASE("Attention without a fused kernel equals attention, with the same masks", "[unit]") {
  const std::vector<int32_t> lengths = {9, 0, 20, 3};
  const int64_t heads = 3, head_size = 16, tokens = 32;
  const Tensor cu = ends_of(lengths), keys = keys_of(tokens);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const Tensor qkv = randn({tokens, 3 * heads * head_size}, 1).to(type);
    const Tensor grad = randn({tokens, heads * head_size}, 2).to(type);
    Tensor leaf = qkv.clone().requires_grad_(true);
    const Tensor want = ops::attention(leaf, cu, 20, heads, drop(0.3, tokens));
    want.backward(grad);
    const auto [out, logsumexp, rng_state] = composite::attention(qkv, cu, 20, heads, 0.3, 11, 1040, keys);
    CHECK(mismatch(out, want, 2.0) == "");  // bf16: the scores are rounded
    const Tensor dqkv =
        composite::attention_backward(grad, qkv, out, logsumexp, rng_state, cu, 20, heads, 0.3, 11, 1040, keys);
    CHECK(mismatch(dqkv, leaf.grad(), 4.0) == "");  // and their gradients
  }
}

TEST_CASE("Attention in bf16 equals attention in double on every instruction set", "[unit]") {
  const std::vector<int32_t> lengths = {1, 15, 16, 0, 17, 32, 33, 64, 100, 150};
  const Tensor cu = ends_of(lengths);
  const int64_t tokens = cu[-1].item<int64_t>(), heads = 2;
  const std::string best = simd::kernels().name;
  for (const char* name : {"plain", "avx2", "avx512", "avx512_bf16", "amx"}) {
    if (!simd::choose_kernels(name)) continue;
    for (const int64_t head_size : {24, 32, 64, 96}) {
      for (const double p : {0.0, 0.2}) {
        INFO(name << " head size " << head_size << " p " << p);
        const Op op = [&](const Tensors& in) { return ops::attention(in[0], cu, 150, heads, drop(p, tokens)); };
        compare(op, op, {randn({tokens, 3 * heads * head_size}, 1)}, at::kBFloat16, 2.0);  // in double ATen computes it
      }
    }
  }
  REQUIRE(simd::choose_kernels(best.c_str()));
}

TEST_CASE("cross_entropy equals its definition and leaves padded columns out", "[unit]") {
  for (const auto type : kTypes) {
    for (const auto& [rows, columns, classes] :
         std::vector<std::array<int64_t, 3>>{{0, 7, 7}, {1, 2, 2}, {5, 70, 67}, {33, 1024, 1000}}) {
      const Tensor labels = integers(classes, rows, 3);
      const Tensor logits = (4 * randn({rows, columns}, 1)).to(type);
      Tensor x = logits.clone().requires_grad_(true);
      const Tensor loss = ops::cross_entropy(x, labels, classes);
      CHECK(loss.scalar_type() == (type == at::kDouble ? at::kDouble : at::kFloat));
      (loss * 3).backward();
      const Tensor probabilities = at::softmax(logits.to(at::kDouble).narrow(1, 0, classes), 1);
      Tensor gradient = at::zeros({rows, columns}, at::kDouble);
      if (rows > 0) {
        const Tensor hot = at::one_hot(labels, classes).to(at::kDouble);
        gradient.narrow(1, 0, classes).copy_((probabilities - hot) * 3.0 / static_cast<double>(rows));
        CHECK(loss.item<double>() == Approx(-(probabilities * hot).sum(1).log().mean().item<double>()).epsilon(1e-5));
      } else {
        CHECK(loss.item<double>() == 0.0);
      }
      CHECK(mismatch(x.grad(), gradient) == "");
    }
  }
  const Tensor labels = integers(4, 3, 1);
  gradcheck([&](const Tensors& in) { return ops::cross_entropy(in[0], labels, 4); }, {randn({3, 5}, 2)});
}

TEST_CASE("cross_entropy of a label outside of the classes is NaN where nobody looks at labels", "[unit]") {
  const Tensor logits = randn({3, 7}, 1), labels = at::tensor({2, -100, 6}, at::kLong);  // 6 is a padded column
  const auto [loss, logsumexp] = composite::cross_entropy(logits, labels, 6);
  CHECK(std::isnan(loss.item<double>()));
  Tensor gradient = logits.clone();
  composite::cross_entropy_backward_(gradient, at::ones({}, at::kDouble), labels, logsumexp, 6);
  CHECK(gradient[0].isfinite().all().item<bool>());
  for (const int64_t row : {1, 2}) {
    CHECK(gradient[row].narrow(0, 0, 6).isnan().all().item<bool>());
    CHECK(gradient[row][6].item<double>() == 0.0);
  }
}

TEST_CASE("cross_entropy writes its gradient over logits that nobody else holds, and only then", "[unit]") {
  const Tensor labels = integers(9, 4, 1);
  const Tensor leaf = randn({4, 9}, 2).to(at::kFloat).requires_grad_(true);
  const Tensor kept = leaf * 1, before = kept.detach().clone();
  ops::cross_entropy(kept, labels, 9).backward();
  CHECK(at::equal(kept, before));
  const Tensor expected = leaf.grad().clone();
  leaf.mutable_grad().zero_();
  const Tensor loss = ops::cross_entropy(leaf * 1, labels, 9);
  loss.backward({}, /*retain_graph=*/true);
  CHECK(at::equal(leaf.grad(), expected));
  CHECK_THROWS_WITH(loss.backward(), Contains("modified by an inplace operation"));
}

TEST_CASE("Rows behind the counted ones take no part in a cross entropy", "[unit]") {
  for (const auto type : kTypes) {
    const Tensor logits = randn({6, 9}, 1).to(type), labels = integers(7, 6, 2);
    for (const int64_t counted : {0, 1, 4, 6}) {
      CAPTURE(type, counted);
      const Tensor x = logits.clone().requires_grad_(true),
                   part = logits.narrow(0, 0, counted).clone().requires_grad_(true);
      const auto got = ops::cross_entropy_of_rows(x, labels, 7, at::full({}, static_cast<float>(counted)));
      const Tensor want = ops::cross_entropy(part, labels.narrow(0, 0, counted), 7);
      CHECK((type == at::kDouble ? mismatch(got.mean, want, {1e-12, 1e-12}) == "" : got.mean.equal(want)));
      CHECK(got.rows.narrow(0, counted, 6 - counted).eq(0).all().item<bool>());
      got.mean.backward();
      CHECK(x.grad().narrow(0, counted, 6 - counted).eq(0).all().item<bool>());
      if (counted == 0) continue;
      want.backward();
      CHECK(mismatch(x.grad().narrow(0, 0, counted), part.grad(), {1e-6, 1e-6}) == "");
    }
    CHECK_THROWS_WITH(ops::cross_entropy(logits, labels, 7, at::full({}, 7.0F)), Contains("counted must be in [0, 6]"));
  }
}

TEST_CASE("The rows of a cross entropy are the terms of its mean, and do not keep the logits", "[unit]") {
  const Tensor labels = integers(7, 5, 1), logits = randn({5, 9}, 2).to(at::kFloat);
  const auto [mean, rows] = ops::cross_entropy_of_rows(logits, labels, 7);
  CHECK(mismatch(rows, at::cross_entropy_loss(logits.narrow(1, 0, 7), labels, {}, at::Reduction::None), {1e-6, 1e-6}) ==
        "");
  CHECK(mean.item<double>() == Approx(rows.mean().item<double>()));
  CHECK(ops::cross_entropy_of_rows(logits.narrow(0, 0, 0), labels.narrow(0, 0, 0), 7).rows.numel() == 0);

  const Tensor leaf = logits.clone().requires_grad_(true);
  const auto with_rows = ops::cross_entropy_of_rows(leaf * 1, labels, 7);
  CHECK_FALSE(with_rows.rows.requires_grad());
  with_rows.mean.backward({}, /*retain_graph=*/true);
  CHECK_THROWS_WITH(with_rows.mean.backward(), Contains("modified by an inplace operation"));  // the gradient is there
}

TEST_CASE("Softmax and cross entropy refuse what does not fit and say what they got", "[unit]") {
  const Tensor x = at::zeros({4, 6}), ids = at::zeros({4}, at::kLong);
  const Tensor scores = at::zeros({2, 1, 4, 3});
  CHECK_THROWS_WITH(ops::masked_softmax_dropout(scores, ids, 1.0, {}), Contains("cu_seqlens must be [3]"));
  CHECK_THROWS_WITH(ops::masked_softmax_dropout(scores, ends_of({1, 4}), 1.0, {}), Contains("0 to 3 tokens"));
  CHECK_THROWS_WITH(ops::masked_softmax_dropout(scores, ends_of({3, -1}), 1.0, {}),
                    Contains("got cu_seqlens 3 then 2"));
  CHECK_THROWS_WITH(ops::masked_softmax_dropout(scores, ends_of({3, 2}), 1.0, {.p = 0.1, .keys = ids}),
                    Contains("dropout.keys must be [5]") && Contains("got [4]"));
  CHECK_THROWS_WITH(ops::cross_entropy(x, ids, 7), Contains("num_classes") && Contains("got 7"));
  CHECK_THROWS_WITH(ops::cross_entropy(x, at::full({4}, 9, at::kLong), 6), Contains("label") && Contains("9"));
}

}  // namespace
}  // namespace bert
