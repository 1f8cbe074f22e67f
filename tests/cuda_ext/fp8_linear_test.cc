// Linear layers in FP8: LibTorch's conversion, and values and gradients against products in double of numbers that the
// table of FP8 gives.
#include "cuda_ext/fp8_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <vector>

#include "optim/amp.h"
#include "tests/support/fp8_table.h"
#include "tests/support/ops_testing.h"

namespace bert {
namespace {

using at::Tensor;
using testing::Contains;

TEST_CASE("LibTorch rounds clipped numbers to FP8 as the kernel does", "[unit]") {
  const Tensor all = at::arange(65536, at::kInt).to(at::kShort).view(at::kBFloat16).to(at::kFloat);
  const auto check = [&](const Fp8Table& table, at::ScalarType type) {
    const Tensor bytes = all.clamp(-table.most(), table.most()).to(type).view(at::kByte);
    std::vector<float> wrong;
    for (int64_t i = 0; i < all.numel(); ++i) {
      const float x = all.const_data_ptr<float>()[i];
      if (!table.is_nearest(x, bytes.const_data_ptr<uint8_t>()[i])) wrong.push_back(x);
    }
    CHECK(wrong == std::vector<float>{});
  };
  check(Fp8Table(Fp8::kE4M3), at::kFloat8_e4m3fn);
  check(Fp8Table(Fp8::kE5M2), at::kFloat8_e5m2);
}

constexpr int64_t kTokens = 21, kIn = 32, kOut = 16;
const float kScales[3] = {37.5F, 210.0F, 9000.0F};  // no powers of two; some gradients are beyond the largest number

struct Layer {
  std::vector<Tensor> weights, biases;
  ops::Fp8Scaling scaling;

  Layer(size_t parts, bool has_bias) {
    const Tensor joined = testing::randn({static_cast<int64_t>(parts) * kOut, kIn}, 2).to(at::kFloat);
    for (const Tensor& part : joined.chunk(static_cast<int64_t>(parts))) {
      weights.push_back(part.clone().requires_grad_());
      if (has_bias) biases.push_back(testing::randn({kOut}, 3 + weights.size()).to(at::kFloat).requires_grad_());
    }
    const Tensor scales = at::tensor({kScales[0], kScales[1], kScales[2]});
    scaling = {.scales = at::stack({scales, scales.reciprocal()}), .amaxes = at::zeros({3})};
  }
};

/// x times the scale in FP8, divided by it, in double.
Tensor rounded(const Tensor& x, Fp8 format, float scale) {
  const Fp8Table table(format);
  const Tensor result = at::empty(x.sizes(), at::kDouble), values = x.to(at::kFloat).contiguous();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float scaled = values.const_data_ptr<float>()[i] * scale;
    const uint32_t byte = format == Fp8::kE4M3 ? fp8_byte<Fp8::kE4M3>(scaled) : fp8_byte<Fp8::kE5M2>(scaled);
    result.mutable_data_ptr<double>()[i] = table.number(byte) / static_cast<double>(scale);
  }
  return result;
}

void check_layer(size_t parts, bool has_bias) {
  CAPTURE(parts, has_bias);
  const Layer layer(parts, has_bias);
  const Tensor x = testing::randn({kTokens, kIn}, 1).to(at::kBFloat16).requires_grad_();
  const Tensor y = ops::fp8_linear(x, layer.weights, layer.biases, layer.scaling);
  REQUIRE(y.scalar_type() == at::kBFloat16);
  const Tensor grad = testing::randn(y.sizes(), 9).mul(3).to(at::kBFloat16);
  std::vector<Tensor> inputs = {x};
  inputs.insert(inputs.end(), layer.weights.begin(), layer.weights.end());
  inputs.insert(inputs.end(), layer.biases.begin(), layer.biases.end());
  const std::vector<Tensor> got = torch::autograd::grad({y}, inputs, {grad});

  const Tensor weight = at::cat(layer.weights).detach();
  const Tensor x8 = rounded(x.detach(), Fp8::kE4M3, kScales[0]), w8 = rounded(weight, Fp8::kE4M3, kScales[1]),
               g8 = rounded(grad, Fp8::kE5M2, kScales[2]);
  Tensor want = at::mm(x8, w8.t());
  if (has_bias) want = want + at::cat(layer.biases).detach().to(at::kDouble);
  CHECK(testing::mismatch(y.detach(), want) == "");
  CHECK(testing::mismatch(got[0], at::mm(g8, w8), 8.0) == "");
  const Tensor dweight = at::mm(g8.t(), x8), dbias = grad.to(at::kDouble).sum(0);
  for (size_t i = 0; i < parts; ++i) {
    const auto of = static_cast<int64_t>(i);
    CHECK(got[1 + i].scalar_type() == at::kFloat);
    CHECK(testing::mismatch(got[1 + i], dweight.narrow(0, of * kOut, kOut), 8.0) == "");
    if (has_bias) CHECK(testing::mismatch(got[1 + parts + i], dbias.narrow(0, of * kOut, kOut), 8.0) == "");
  }
  const Tensor amaxes =
      at::stack({x.detach().to(at::kFloat).abs().max(), weight.abs().max(), grad.to(at::kFloat).abs().max()});
  CHECK(at::equal(layer.scaling.amaxes, amaxes));
  // A twin: without rounding the results differ.
  CHECK(testing::mismatch(y.detach(), at::mm(x.detach().to(at::kDouble), weight.to(at::kDouble).t())) != "");
}

TEST_CASE("A linear layer in FP8 multiplies rounded numbers, forward and backward", "[unit]") {
  for (const size_t parts : {1, 3}) {
    for (const bool has_bias : {false, true}) check_layer(parts, has_bias);
  }
}

TEST_CASE("Greatest values grow from call to call, and NaN among them stays", "[unit]") {
  const Layer layer(1, false);
  const auto run = [&](double value) {
    ops::fp8_linear(at::full({2, kIn}, value).to(at::kBFloat16), layer.weights, {}, layer.scaling);
    return layer.scaling.amaxes[0].item<float>();
  };
  CHECK(run(-2.0) == 2.0F);
  CHECK(run(1.0) == 2.0F);
  CHECK(run(3.0) == 3.0F);
  CHECK(std::isnan(run(std::numeric_limits<double>::quiet_NaN())));
  CHECK(std::isnan(run(1.0)));
  CHECK(layer.scaling.amaxes[2].item<float>() == 0.0F);  // there was no backward
}

TEST_CASE("Under autocast the input of FP8 is bf16, and the weight is not rounded to it before", "[unit]") {
  const Layer layer(1, true);
  const Tensor x = testing::randn({kTokens, kIn}, 1).to(at::kFloat).requires_grad_();
  Tensor y;
  {
    const AutocastGuard autocast(c10::kCPU, Precision::kFp8);
    y = ops::fp8_linear(x, layer.weights, layer.biases, layer.scaling);
  }
  CHECK(y.scalar_type() == at::kBFloat16);
  CHECK(at::equal(y, ops::fp8_linear(x.detach().to(at::kBFloat16), layer.weights, layer.biases, layer.scaling)));
  const auto grads = torch::autograd::grad({y}, {x, layer.weights[0], layer.biases[0]}, {at::ones_like(y)});
  for (const Tensor& gradient : grads) CHECK(gradient.scalar_type() == at::kFloat);
}

TEST_CASE("A layer in FP8 refuses weights and biases that do not fit", "[unit]") {
  const Layer one(1, true), three(3, true);
  const Tensor x = at::ones({2, kIn});
  const auto run = [&](const std::vector<Tensor>& weights, const std::vector<Tensor>& biases) {
    return ops::fp8_linear(x, weights, biases, one.scaling);
  };
  CHECK_THROWS_WITH(run({one.weights[0], one.weights[0]}, {}), Contains("fp8_linear: weights must be 1 or 3, got 2"));
  CHECK_THROWS_WITH(run(three.weights, one.biases), Contains("fp8_linear: biases must be none or 3, got 1"));
  CHECK_THROWS_WITH(run({at::ones({kOut, kIn + 1})}, {}), Contains("a weight must be [-1, 32]"));
  CHECK_THROWS_WITH(run(one.weights, {at::ones({kOut + 1})}), Contains("a bias must be [16]"));
  CHECK_THROWS_WITH(
      ops::fp8_linear(x, one.weights, {}, {.scales = at::ones({2, 3}).to(at::kHalf), .amaxes = at::ones({3})}),
      Contains("scales must be Float"));
  CHECK_NOTHROW(ops::fp8_linear(at::ones({0, kIn}), one.weights, {}, one.scaling));
}

}  // namespace
}  // namespace bert
