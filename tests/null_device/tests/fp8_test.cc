// Linear layers in FP8 on the device: the products of cuBLASLt, and who gets none.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <vector>

#include "app/system/errors.h"
#include "app/train/step/training_step.h"
#include "cuda_ext/fp8_linear.h"
#include "tests/null_device/null_device.h"
#include "tests/null_device/tests/step_testing.h"
#include "tests/support/device_under_test.h"
// The last include: it includes Catch2.
#include "tests/null_device/tests/device_testing.h"

namespace bert {
namespace {

using at::Tensor;
using namespace testing;  // NOLINT(google-build-using-namespace)

/// The result, the gradients of the input, of three weights and of their biases, and the greatest values.
std::vector<Tensor> layer_on(c10::Device device, int64_t tokens) {
  constexpr int64_t kIn = 48, kOut = 32;
  const auto random = [&](at::IntArrayRef sizes, uint64_t seed) {
    return at::randn(sizes, at::detail::createCPUGenerator(seed)).to(device);
  };
  std::vector<Tensor> weights, biases;
  for (const Tensor& part : random({3 * kOut, kIn}, 2).chunk(3)) weights.push_back(part.requires_grad_());
  for (const Tensor& part : random({3 * kOut}, 3).chunk(3)) biases.push_back(part.requires_grad_());
  const Tensor scales = at::tensor({37.5F, 210.0F, 9000.0F}).to(device);
  const ops::Fp8Scaling scaling{.scales = at::stack({scales, scales.reciprocal()}),
                                .amaxes = at::zeros({3}, scales.options())};
  const Tensor x = random({tokens, kIn}, 1).to(at::kBFloat16).requires_grad_();
  const Tensor y = ops::fp8_linear(x, weights, biases, scaling);
  std::vector<Tensor> inputs = {x};
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  inputs.insert(inputs.end(), biases.begin(), biases.end());
  std::vector<Tensor> results = torch::autograd::grad({y}, inputs, {random(y.sizes(), 4).to(at::kBFloat16)});
  results.push_back(y.detach());
  results.push_back(scaling.amaxes);
  return results;
}

}  // namespace

TEST_CASE("A layer in FP8 has three products of cuBLASLt, and the CPU's results", "[cuda][null_device]") {
  BERT_DEVICE_OR_SKIP(device);
  for (const int64_t tokens : {1, 16, 21, 130}) {
    INFO(tokens << " tokens");
    null_device::reset_counts();
    const std::vector<Tensor> got = layer_on(device, tokens);
    CHECK(null_device::count("product") == 3);
    const std::vector<Tensor> want = layer_on(c10::kCPU, tokens);
    for (size_t i = 0; i < want.size(); ++i) {
      INFO("result " << i);
      CHECK(got[i].scalar_type() == want[i].scalar_type());
      // Sums in another order; one rounding of bf16 where it is the result. The device also rounds y's product, of up to
      // 32, before it adds the bias.
      const double absolute = i + 2 == want.size() ? 0.125 : 1e-3;
      CHECK(at::allclose(on_host(got[i]).to(at::kFloat), want[i].to(at::kFloat), 1e-2, absolute));
    }
    CHECK(at::equal(on_host(got.back()), want.back()));
  }
}

TEST_CASE("A model whose sizes cuBLASLt has no products for is refused in FP8", "[cuda][null_device]") {
  BERT_DEVICE_OR_SKIP(device);
  PretrainConfig config = tiny_step("fp8");
  config.model.intermediate_size = 72;
  CHECK_THROWS_AS(TrainingStep(config, device, nullptr), ConfigError);
  CHECK_THROWS_WITH(TrainingStep(config, device, nullptr),
                    Contains("model.intermediate_size is 72, expected a multiple of 16 on CUDA"));
}

namespace {

const TestProgram kOnAmpere("a step in FP8 on a device of 8.0", [] {
  CHECK_THROWS_AS(TrainingStep(tiny_step("fp8"), kFirst, nullptr), ConfigError);
  CHECK_THROWS_WITH(TrainingStep(tiny_step("fp8"), kFirst, nullptr),
                    Contains("precision fp8: an older device") &&
                        Contains("has compute capability 8.0, expected at least 8.9; use bf16"));
});

}  // namespace

TEST_CASE("FP8 is refused on a device before Ada", "[cuda][null_device]") {
  const Ended ended =
      run_in_process(kOnAmpere, {{"NULL_DEVICE_NAME", "an older device"}, {"NULL_DEVICE_CAPABILITY", "80"}});
  CHECK(ended.signal == 0);
  CHECK(ended.code == 0);
}

}  // namespace bert
