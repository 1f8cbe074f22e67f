// Precisions and their scopes.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <utility>

#include "optim/amp.h"
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

TEST_CASE("Precisions have names, a dtype of the weights, and need a scale or not", "[unit][optim]") {
  CHECK(parse_precision("bf16-weights") == Precision::kBf16Weights);
  CHECK_THROWS_WITH(parse_precision("fp8"),
                    testing::Contains("\"fp8\", expected one of: fp32, tf32, bf16, fp16, bf16-weights"));
  CHECK(weights_dtype(Precision::kBf16) == at::kFloat);
  CHECK(weights_dtype(Precision::kFp16Weights) == at::kHalf);
  CHECK(needs_loss_scale(Precision::kFp16));
  CHECK_FALSE(needs_loss_scale(Precision::kBf16Weights));
}

}  // namespace bert
