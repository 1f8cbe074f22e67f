// Delayed scaling against numbers that are made by hand with Transformer Engine's formula.
#include "optim/fp8_scaler.h"

#include <ATen/ATen.h>

#include <limits>
#include <vector>

#include "tests/testing.h"

namespace bert {
namespace {

/// A scaler of two layers, of which the second sees the values, and its scales.
struct Steps {
  Fp8Scaler scaler{2, at::kCPU};

  std::vector<float> step(float input, float weight, float gradient) {
    const at::Tensor amaxes = scaler.scaling(1).amaxes;
    amaxes.copy_(at::tensor({input, weight, gradient}));
    scaler.update();
    CHECK(amaxes.abs().max().item<float>() == 0.0F);
    const at::Tensor scales = scaler.scaling(1).scales;
    CHECK(at::equal(scales[1], scales[0].reciprocal()));
    CHECK(at::equal(scaler.scaling(0).scales, at::ones({2, 3})));  // those of the first layer stay
    return {scales[0][0].item<float>(), scales[0][1].item<float>(), scales[0][2].item<float>()};
  }
};

using Scales = std::vector<float>;

TEST_CASE("Scales are the largest number of the format by the greatest value of the history", "[unit][optim]") {
  Steps steps;
  CHECK(at::equal(steps.scaler.scaling(1).scales, at::ones({2, 3})));
  CHECK(steps.step(2.0F, 0.07F, 1e-5F) == Scales{224.0F, 448.0F / 0.07F, 57344.0F / 1e-5F});
  CHECK(steps.step(1.0F, 0.1F, 2e-5F) == Scales{224.0F, 448.0F / 0.1F, 57344.0F / 2e-5F});
  CHECK(steps.step(896.0F, 0.0F, 0.0F) == Scales{0.5F, 448.0F / 0.1F, 57344.0F / 2e-5F});
}

TEST_CASE("A scale stays where nothing but zeros was seen, and where a value is not finite", "[unit][optim]") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  Steps steps;
  CHECK(steps.step(0.0F, kInfinity, kNan) == Scales{1.0F, 1.0F, 1.0F});
  CHECK(steps.step(1.0F, 2.0F, 4.0F) == Scales{448.0F, 224.0F, 14336.0F});
  CHECK(steps.step(kNan, kInfinity, 8.0F) == Scales{448.0F, 224.0F, 7168.0F});
  CHECK(steps.scaler.state_dict()["fp8.amax_history"].isfinite().all().item<bool>());
  // 448 / 1e-38 is beyond fp32.
  Steps tiny;
  CHECK(tiny.step(1e-38F, 1.0F, 1.0F)[0] == std::numeric_limits<float>::max());
}

TEST_CASE("A greatest value leaves the history after its window", "[unit][optim]") {
  Steps steps;
  steps.step(448.0F, 448.0F, 57344.0F);
  for (int64_t step = 1; step < Fp8Scaler::kWindow; ++step) {
    REQUIRE(steps.step(1.0F, 2.0F, 1.0F) == Scales{1.0F, 1.0F, 1.0F});
  }
  CHECK(steps.step(1.0F, 2.0F, 1.0F) == Scales{448.0F, 224.0F, 57344.0F});
}

TEST_CASE("Greatest values of ranks are compared as integers, and their state has names", "[unit][optim]") {
  Fp8Scaler scaler(1, at::kCPU);
  const at::Tensor amaxes = scaler.scaling(0).amaxes;
  amaxes.copy_(at::tensor({1.5F, 3.0F, 0.25F}));
  const at::Tensor other = at::tensor({2.0F, std::numeric_limits<float>::quiet_NaN(), 0.125F}).view(at::kInt);
  scaler.amaxes().copy_(at::maximum(scaler.amaxes(), other.view({1, 3})));
  CHECK(amaxes[0].item<float>() == 2.0F);
  CHECK(amaxes[1].isnan().item<bool>());
  CHECK(amaxes[2].item<float>() == 0.25F);
  for (const auto& item : scaler.state_dict()) CHECK(is_fp8_state(item.key()));
  CHECK_FALSE(is_fp8_state("exp_avg.fp8."));
}

}  // namespace
}  // namespace bert
