// Precisions and their scopes.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <tuple>
#include <utility>

#include "cuda_ext/ops.h"
#include "optim/amp.h"
#include "tests/support/mismatch.h"
#include "tests/testing.h"

namespace bert {

using torch::Tensor;

TEST_CASE("AutocastGuard sets, nests and puts back", "[unit][optim]") {
  const Tensor x = at::ones({2, 2}), weight = at::ones({2, 2}).requires_grad_();
  const auto dtype = [&] { return at::matmul(x, weight).scalar_type(); };
  CHECK(dtype() == at::kFloat);
  {
    const AutocastGuard bf16(at::kCPU, Precision::kBf16);
    CHECK(dtype() == at::kBFloat16);
    {
      const AutocastGuard fp32(at::kCPU, Precision::kFp32);
      CHECK(dtype() == at::kFloat);
    }
    CHECK(dtype() == at::kBFloat16);
    {
      const AutocastGuard fp16(at::kCPU, Precision::kFp16);
      CHECK(dtype() == at::kHalf);
    }
    CHECK(dtype() == at::kBFloat16);
  }
  CHECK(dtype() == at::kFloat);
  CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST_CASE("AutocastGuard sets the precision of fp32 products for tf32 and fp32, and puts it back", "[unit][optim]") {
  const auto matmul = [] { return at::globalContext().float32MatmulPrecision(); };
  const auto before = matmul();
  for (const auto& [word, outside] :
       {std::pair{"medium", at::Float32MatmulPrecision::MEDIUM}, {"highest", at::Float32MatmulPrecision::HIGHEST}}) {
    at::globalContext().setFloat32MatmulPrecision(word);
    {
      const AutocastGuard tf32(at::kCPU, Precision::kTf32);
      CHECK(matmul() == at::Float32MatmulPrecision::HIGH);
      CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
      {
        const AutocastGuard fp32(at::kCPU, Precision::kFp32);
        CHECK(matmul() == at::Float32MatmulPrecision::HIGHEST);
        const AutocastGuard bf16(at::kCPU, Precision::kBf16);
        CHECK(matmul() == at::Float32MatmulPrecision::HIGHEST);
      }
      CHECK(matmul() == at::Float32MatmulPrecision::HIGH);
    }
    CHECK(matmul() == outside);
    const AutocastGuard fp16(at::kCPU, Precision::kFp16);
    CHECK(matmul() == outside);
  }
  set_matmul_precision(Precision::kTf32);
  CHECK(matmul() == at::Float32MatmulPrecision::HIGH);
  set_matmul_precision(Precision::kFp32);
  CHECK(matmul() == before);
}

TEST_CASE("Under autocast statistics and sums are fp32, also far from zero", "[unit][optim]") {
  constexpr int64_t kSize = 256;
  for (const auto& [precision, dtype, mean] :
       {std::tuple{Precision::kBf16, at::kBFloat16, 60.0}, {Precision::kFp16, at::kHalf, 500.0}}) {
    CAPTURE(dtype);
    at::manual_seed(2);
    const AutocastGuard autocast(at::kCPU, precision);
    const Tensor x = (at::randn({kSize, kSize}) + mean).to(dtype), exact = x.to(at::kDouble);
    const Tensor ones = at::ones({kSize}), zeros = at::zeros({kSize});

    const Tensor normed = ops::layer_norm(x, ones, zeros, 1e-12);
    CHECK(normed.scalar_type() == dtype);
    const Tensor centred = exact - exact.mean(1, true);
    const Tensor want = centred / centred.square().mean(1, true).sqrt();
    CHECK(testing::mismatch(normed, want) == "");
    // The twin: the mean computed in the low precision.
    CHECK(testing::mismatch(
              (exact - exact.mean(1, true).to(dtype).to(at::kDouble)) / centred.square().mean(1, true).sqrt(), want,
              testing::tolerance(dtype)) != "");

    const Tensor scores = x.view({1, 1, kSize, kSize}), ends = at::tensor({0, static_cast<int>(kSize)}, at::kInt);
    const Tensor shares = ops::masked_softmax_dropout(scores, ends, 1.0, {});
    CHECK(shares.scalar_type() == dtype);
    const Tensor all = at::softmax(exact, 1);
    CHECK(testing::mismatch(shares.view({kSize, kSize}), all, {1e-6, testing::tolerance(dtype).relative}) == "");

    const Tensor labels = at::arange(kSize, at::kLong);
    const Tensor loss = ops::cross_entropy(x, labels, kSize);
    CHECK(loss.scalar_type() == at::kFloat);
    CHECK(loss.item<double>() ==
          testing::Approx(-all.log().gather(1, labels.unsqueeze(1)).mean().item<double>()).epsilon(1e-5));

    // The dtypes that LibTorch's own operators return on the CPU.
    CHECK(at::layer_norm(x, {kSize}, ones, zeros).scalar_type() == dtype);
    CHECK(at::softmax(x, 1).scalar_type() == dtype);
    CHECK(at::cross_entropy_loss(x, labels).scalar_type() == at::kFloat);
  }
}

TEST_CASE("Precisions have names, a dtype of the weights, and need a scale or not", "[unit][optim]") {
  CHECK(value_named<Precision>("bf16-weights") == Precision::kBf16Weights);
  CHECK(compute_dtype(Precision::kFp8) == at::kBFloat16);
  CHECK_FALSE(value_named<Precision>("fp4"));
  CHECK(weights_dtype(Precision::kBf16) == at::kFloat);
  CHECK(weights_dtype(Precision::kFp16Weights) == at::kHalf);
  CHECK(needs_loss_scale(Precision::kFp16));
  CHECK_FALSE(needs_loss_scale(Precision::kBf16Weights));
}

}  // namespace bert
