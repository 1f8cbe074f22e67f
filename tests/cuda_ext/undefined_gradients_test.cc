// Backward of operators whose other outputs have no gradient: it neither asks for zeros nor computes anything for them.
// Also: gradients that exist.
#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cuda_ext/ops.h"
#include "tests/testing.h"

namespace bert {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Case {
  std::string name;
  std::vector<int64_t> shape;
  std::function<Tensor(const Tensor& x)> op;
};

/// Every operator with more than one output.
std::vector<Case> cases() {
  const Tensor keys = at::arange(6, at::kLong), ends = at::tensor({0, 4, 6}, at::kInt), ones = at::ones({8});
  const ops::Dropout drop{.p = 0.2, .seed = 1, .site = 1040, .keys = keys};
  return {
      {"layer_norm", {6, 8}, [=](const Tensor& x) { return ops::layer_norm(x, ones, ones, 1e-12); }},
      {"bias_dropout_residual_layer_norm",
       {6, 8},
       [=](const Tensor& x) { return ops::bias_dropout_residual_layer_norm(x, ones, x, ones, ones, 1e-12, drop); }},
      {"embedding_layer_norm_dropout",
       {6, 8},
       [=](const Tensor& x) {
         return ops::embedding_layer_norm_dropout(keys, keys, keys, {.word = x, .position = x, .type = x}, ones, ones,
                                                  1e-12, drop);
       }},
      {"attention", {6, 24}, [=](const Tensor& x) { return ops::attention(x, ends, 4, 2, drop); }},
      {"masked_softmax_dropout",
       {2, 1, 4, 4},
       [=](const Tensor& x) { return ops::masked_softmax_dropout(x, ends, 0.5, drop); }},
      {"dropout", {6, 8}, [=](const Tensor& x) { return ops::dropout(x, drop); }},
      {"cross_entropy", {6, 8}, [=](const Tensor& x) { return ops::cross_entropy(x, keys, 7); }},
  };
}

int zeros = 0;

std::unique_ptr<at::ObserverContext> count_zeros(const at::RecordFunction& function) {
  if (std::string(function.name()) == "aten::zeros") ++zeros;
  return nullptr;
}

template <class Body>
int zeros_in(const Body& body) {
  zeros = 0;
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(count_zeros));
  body();
  at::removeCallback(handle);
  return zeros;
}

/// An identity that loses the gradient.
struct Blocked : torch::autograd::Function<Blocked> {
  static Tensor forward(AutogradContext* /*ctx*/, const Tensor& x) { return x.clone(); }
  static variable_list backward(AutogradContext* /*ctx*/, const variable_list& /*grads*/) { return {Tensor()}; }
};

/// Two outputs; LibTorch makes zeros for the second, which the count must see.
struct Wasteful : torch::autograd::Function<Wasteful> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x) {
    const Tensor second = x.clone();
    ctx->mark_non_differentiable({second});
    return {x.clone(), second};
  }
  static variable_list backward(AutogradContext* /*ctx*/, const variable_list& grads) { return {grads[0]}; }
};

TEST_CASE("Backward makes no zeros for statistics and masks", "[unit]") {
  const auto in_backward = [](const Case& test) {
    const Tensor x = at::rand(test.shape).requires_grad_(true), y = test.op(x), upstream = at::ones_like(y);
    return zeros_in([&] { torch::autograd::grad({y}, {x}, {upstream}); });
  };
  CHECK(in_backward({"", {3}, [](const Tensor& x) { return Wasteful::apply(x).front(); }}) == 1);
  for (const Case& test : cases()) {
    INFO(test.name);
    // The layer norms allocate one, memory in which the threads of the kernel add up, and the composition one number.
    const bool one = test.name.find("layer_norm") != std::string::npos || test.name == "masked_softmax_dropout";
    CHECK(in_backward(test) == (one ? 1 : 0));
  }
}

TEST_CASE("An operator whose result has no gradient gives none", "[unit]") {
  for (const Case& test : cases()) {
    INFO(test.name);
    const Tensor x = at::rand(test.shape).requires_grad_(true), y = Blocked::apply(test.op(x)).sum();
    CHECK_FALSE(torch::autograd::grad({y}, {x}, {}, std::nullopt, false, /*allow_unused=*/true).front().defined());
  }
}

TEST_CASE("A derivative of an operator's gradients is refused", "[unit]") {
  std::vector<Case> all = cases();
  all.push_back({"bias_gelu", {6, 8}, [](const Tensor& x) { return ops::bias_gelu(x, x[0], ops::Gelu::kTanh); }});
  all.push_back({"linear", {6, 8}, [](const Tensor& x) { return ops::linear(x, x, x.select(1, 0).contiguous()); }});
  for (const Case& test : all) {
    INFO(test.name);
    const Tensor x = at::rand(test.shape).requires_grad_(true), y = test.op(x);
    const Tensor once = torch::autograd::grad({y}, {x}, {at::rand_like(y)}, /*retain_graph=*/true).front();
    const Tensor gradient =
        torch::autograd::grad({y}, {x}, {at::rand_like(y)}, std::nullopt, /*create_graph=*/true).front();
    CHECK(gradient.sizes() == once.sizes());
    CHECK_THROWS_WITH(gradient.square().sum().backward(), testing::Contains("first derivatives only"));
  }
}

}  // namespace
}  // namespace bert
