// Attention with a mask, which padded sequences need: the kernels of LibTorch on the device against the CPU's.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/device_under_test.h"
#include "tests/testing.h"

namespace bert {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

/// Chooses the kernels of scaled_dot_product_attention on CUDA while it lives. cuDNN's are not deterministic.
class OnlyKernels {
 public:
  explicit OnlyKernels(const std::string& kind) : deterministic_(at::globalContext().deterministicAlgorithms()) {
    at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
    allow(false);
    if (kind == "efficient") at::globalContext().setSDPUseMemEfficient(true);
    if (kind == "cuDNN") at::globalContext().setSDPUseCuDNN(true);
  }
  ~OnlyKernels() {
    allow(true);
    at::globalContext().setDeterministicAlgorithms(deterministic_, /*warn_only=*/false);
  }
  OnlyKernels(const OnlyKernels&) = delete;
  OnlyKernels& operator=(const OnlyKernels&) = delete;

 private:
  static void allow(bool all) {
    at::Context& context = at::globalContext();
    context.setSDPUseFlash(all);
    context.setSDPUseMemEfficient(all);
    context.setSDPUseMath(all);
    context.setSDPUseCuDNN(all);
  }
  bool deterministic_;  // before
};

/// The result, and the gradients of query, key and value.
Tensors attention(const Tensors& inputs, const Tensor& mask, at::ScalarType type, c10::Device device) {
  Tensors leaves;
  for (const Tensor& input : inputs) leaves.push_back(input.to(type).to(device).requires_grad_(true));
  const Tensor out = at::scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], mask.to(device));
  const Tensor upstream = at::linspace(-1, 1, out.numel(), at::kDouble).mul(7).sin().view(out.sizes());
  Tensors results = torch::autograd::grad({out}, leaves, {upstream.to(out.options())});
  results.insert(results.begin(), out.detach());
  return results;
}

}  // namespace

TEST_CASE("Attention with a mask gives the CPU's results and gradients, by every kind of kernels",
          "[cuda][null_device]") {
  BERT_DEVICE_OR_SKIP(device);
  constexpr int64_t kBatch = 3, kHeads = 2, kTokens = 21, kSize = 16;
  Tensors inputs;
  for (const uint64_t seed : {1, 2, 3}) {
    const auto generator = at::detail::createCPUGenerator(seed);
    inputs.push_back(at::randn({kBatch, kHeads, kTokens, kSize}, generator, at::kFloat));
  }
  const Tensor lengths = at::tensor({int64_t{5}, kTokens, int64_t{1}}).view({kBatch, 1, 1, 1});
  const Tensor of_batch = at::arange(kTokens) < lengths;
  const Tensor of_query = of_batch.logical_and(at::arange(kTokens) <= at::arange(kTokens).unsqueeze(1));
  using Case = std::pair<const char*, at::ScalarType>;
  for (const auto& [kind, type] : {Case("efficient", at::kFloat), Case("efficient", at::kBFloat16),
                                   Case("cuDNN", at::kBFloat16), Case("cuDNN", at::kHalf)}) {
    for (const Tensor& mask : {of_batch, of_query}) {
      INFO(kind << ", " << type << ", mask of " << mask.sizes());
      Tensors got;
      {
        const OnlyKernels only(kind);
        got = attention(inputs, mask, type, device);
      }
      Tensors rounded;
      for (const Tensor& input : inputs) rounded.push_back(input.to(type).to(at::kDouble));
      const Tensors want = attention(rounded, mask, at::kDouble, c10::kCPU);
      const auto limit = type == at::kFloat ? testing::kFloat : type == at::kHalf ? testing::kHalf : testing::kBFloat16;
      for (size_t i = 0; i < want.size(); ++i) {
        INFO("result " << i);
        // Two products, each of rounded numbers.
        CHECK(at::allclose(got[i].cpu().to(at::kDouble), want[i], 4 * limit.relative, 4 * limit.absolute));
      }
    }
  }
}

}  // namespace bert
