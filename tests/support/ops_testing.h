// Shared code of the operator tests: random inputs, value and gradients against a plain expression in double,
// derivatives against finite differences, and the dropout mask by its definition.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "cuda_ext/ops.h"
#include "cuda_ext/scalar/philox.h"
#include "tests/support/mismatch.h"
#include "tests/testing.h"

namespace bert::testing {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Op = std::function<Tensor(const Tensors&)>;

struct Result {
  Tensor y;
  Tensors grads;  // of the inputs that require one
};

/// Floating-point tensors converted to `type`; integer tensors stay.
inline Tensors in_type(const Tensors& inputs, at::ScalarType type) {
  Tensors result;
  for (const Tensor& input : inputs) result.push_back(input.is_floating_point() ? input.to(type) : input);
  return result;
}

/// The same values with other strides.
inline Tensor spread(const Tensor& tensor) { return at::stack({tensor, tensor}, tensor.dim()).select(tensor.dim(), 0); }

/// Value and gradients of op for copies of `inputs`. The upstream gradient is the same for every dtype.
inline Result evaluate(const Op& op, const Tensors& inputs) {
  Tensors leaves, wanted;
  for (const Tensor& input : inputs) {
    leaves.push_back(input.is_floating_point() ? input.detach().clone().requires_grad_(true) : input);
    if (input.is_floating_point()) wanted.push_back(leaves.back());
  }
  const Tensor y = op(leaves);
  const Tensor upstream = at::linspace(-1, 1, y.numel(), at::kDouble).mul(7).sin().view(y.sizes()).to(y.scalar_type());
  return {y.detach(), torch::autograd::grad({y}, wanted, {upstream}, std::nullopt, false, /*allow_unused=*/true)};
}

inline Result evaluate(const Op& op, const Tensors& inputs, at::ScalarType type) {
  return evaluate(op, in_type(inputs, type));
}

/// Compares op in `type` with the plain expression in double. Gradients of parameters are sums over rows, so their
/// tolerance grows with `scale`.
inline void compare(const Op& op, const Op& plain, const Tensors& inputs, at::ScalarType type, double scale = 1.0) {
  const Tensors rounded = in_type(in_type(inputs, type), at::kDouble);
  const Result got = evaluate(op, rounded, type), want = evaluate(plain, rounded, at::kDouble);
  CHECK(got.y.scalar_type() == type);
  CHECK(mismatch(got.y, want.y, scale) == "");
  REQUIRE(got.grads.size() == want.grads.size());
  for (size_t i = 0; i < got.grads.size(); ++i) {
    INFO("gradient " << i);
    const double size = std::max(1.0, want.grads[i].numel() ? want.grads[i].abs().max().item<double>() : 0.0);
    CHECK(mismatch(got.grads[i], want.grads[i], scale * size) == "");
  }
}

/// Checks the derivative along a fixed direction against central differences in double.
inline void gradcheck(const Op& op, const Tensors& inputs) {
  const Result at_point = evaluate(op, inputs, at::kDouble);
  const Tensor upstream = at::linspace(-1, 1, at_point.y.numel(), at::kDouble).mul(7).sin().view(at_point.y.sizes());
  size_t index = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].is_floating_point()) continue;
    const Tensor gradient = at_point.grads[index++].flatten();
    for (int64_t element = 0; element < inputs[i].numel(); ++element) {
      constexpr double kStep = 1e-6;
      double side[2];
      for (int s = 0; s < 2; ++s) {
        Tensors moved = inputs;
        moved[i] = inputs[i].to(at::kDouble).clone();
        moved[i].view(-1)[element] += s == 0 ? -kStep : kStep;
        side[s] = (op(moved) * upstream).sum().item<double>();
      }
      const double want = (side[1] - side[0]) / (2 * kStep);
      INFO("input " << i << " element " << element);
      REQUIRE(gradient[element].item<double>() == testing::Approx(want).epsilon(1e-5).margin(1e-7));
    }
  }
}

inline Tensor randn(at::IntArrayRef sizes, uint64_t seed) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed), at::kDouble);
}
inline Tensor integers(int64_t high, int64_t count, uint64_t seed) {
  return at::randint(high, {count}, at::detail::createCPUGenerator(seed), at::kLong);
}
inline Tensor keys_of(int64_t tokens) { return at::arange(tokens, at::kLong) + (int64_t{5} << 16); }

inline ops::Dropout drop(double p, int64_t tokens) {
  return {.p = p, .seed = 11, .site = 1040, .keys = keys_of(tokens)};
}
/// The mask of drop(), 0 or 1 / (1 - p), by the scalar rule.
inline Tensor scalar_mask(double p, const Tensor& keys, int64_t columns, int64_t site = 1040) {
  Tensor mask = at::empty({keys.size(0), columns}, at::kDouble);
  for (int64_t t = 0; t < keys.size(0); ++t) {
    const auto key = static_cast<uint64_t>(keys[t].item<int64_t>());
    for (int64_t c = 0; c < columns; ++c) {
      const uint32_t word =
          dropout_words(11, key, static_cast<uint32_t>(site), static_cast<uint32_t>(c / 4)).word[c % 4];
      mask.data_ptr<double>()[t * columns + c] = word >= dropout_threshold(p) ? 1.0 / (1.0 - p) : 0.0;
    }
  }
  return mask;
}

inline const std::vector<int64_t> kWidths = {1, 7, 70, 128, 256, 312, 384, 512, 768, 1024};
inline const std::vector<at::ScalarType> kTypes = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf};

}  // namespace bert::testing
