// A product with padded columns: values and gradients of the narrow product, and a loss that ignores the padding.
#include "cuda_ext/padded_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <vector>

#include "cuda_ext/ops.h"
#include "optim/amp.h"
#include "tests/bench/plain_operators.h"
#include "tests/support/mismatch.h"
#include "tests/testing.h"

namespace bert {
namespace {

using at::Tensor;

constexpr int64_t kRows = 9, kHidden = 16, kWords = 29, kColumns = 32;

struct Operands {
  Tensor x, weight, bias;
};

Operands operands() {
  const auto generator = at::detail::createCPUGenerator(3);
  const auto leaf = [&](at::IntArrayRef sizes) { return at::randn(sizes, generator).requires_grad_(true); };
  return {leaf({kRows, kHidden}), leaf({kWords, kHidden}), leaf({kWords})};
}

std::vector<Tensor> loss_and_gradients(const Operands& in, bool padded, Precision precision) {
  const Tensor labels = at::arange(kRows, at::kLong) * 3;
  Tensor loss;
  {
    const AutocastGuard autocast(c10::kCPU, precision);
    loss = ops::cross_entropy(
        padded ? ops::padded_linear(in.x, in.weight, in.bias, kColumns) : ops::linear(in.x, in.weight, in.bias), labels,
        kWords);
  }
  std::vector<Tensor> all = torch::autograd::grad({loss}, {in.x, in.weight, in.bias});
  all.push_back(loss.detach());
  return all;
}

TEST_CASE("Padded columns are 0, and the others are the product", "[unit]") {
  const Operands in = operands();
  for (const bool reference : {false, true}) {
    const Tensor y = [&] {
      const PlainOperators scope(reference ? std::vector{OpGroup::kLinear} : std::vector<OpGroup>{});
      return ops::padded_linear(in.x, in.weight, in.bias, kColumns);
    }();
    CHECK(y.sizes() == at::IntArrayRef({kRows, kColumns}));
    CHECK(testing::mismatch(y.narrow(1, 0, kWords), ops::linear(in.x, in.weight, in.bias)) == "");
    CHECK(y.narrow(1, kWords, kColumns - kWords).abs().max().item<float>() == 0.0F);
  }
  CHECK(at::equal(ops::padded_linear(in.x, in.weight, in.bias, kWords), ops::linear(in.x, in.weight, in.bias)));
  CHECK_THROWS_WITH(ops::padded_linear(in.x, in.weight, in.bias, kWords - 1),
                    testing::Contains("columns must be at least the weight's 29 rows, got 28"));
}

TEST_CASE("A loss over padded columns and its gradients are those over the words alone", "[unit]") {
  const Operands in = operands();
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const std::vector<Tensor> got = loss_and_gradients(in, true, precision),
                              want = loss_and_gradients(in, false, precision);
    const double limit = precision == Precision::kFp32 ? 1e-5 : 1e-2;  // two products may round in different orders
    for (size_t i = 0; i < want.size(); ++i) {
      INFO("result " << i);
      CHECK(got[i].sizes() == want[i].sizes());
      CHECK(got[i].scalar_type() == want[i].scalar_type());
      CHECK(got[i].is_contiguous());
      CHECK(testing::mismatch(got[i], want[i], {limit, limit}) == "");
    }
  }
}

TEST_CASE("The gradient of a padded weight is a view of the product's", "[unit]") {
  const Operands in = operands();
  const Tensor y = ops::padded_linear(in.x, in.weight, in.bias, kColumns);
  const Tensor dweight = torch::autograd::grad({y}, {in.weight}, {at::ones_like(y)}).front();
  CHECK(dweight.storage().nbytes() == kColumns * kHidden * sizeof(float));
}

}  // namespace
}  // namespace bert
