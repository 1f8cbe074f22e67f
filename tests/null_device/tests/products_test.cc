// Products with epilogues, and gradients that derivatives add to .grad themselves, against the plain composition in
// fp64.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <vector>

#include "cuda_ext/beside_residual.h"
#include "optim/amp.h"
#include "tests/null_device/operators/operators.h"
#include "tests/null_device/tests/device_testing.h"
#include "tests/support/device_under_test.h"
#include "tests/testing.h"

using namespace bert;
using namespace bert::testing;
using at::Tensor;

namespace {

using Tensors = std::vector<Tensor>;

Tensor random_like(at::IntArrayRef sizes, int64_t seed, double scale) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed));
  return at::randn(sizes, generator, at::TensorOptions().dtype(at::kDouble)) * scale;
}

/// x, and the parameters of a feed-forward block or of query, key and value: values for both sides of a comparison.
Tensors feed_forward_inputs(int64_t tokens, int64_t hidden, int64_t wide) {
  return {random_like({tokens, hidden}, 1, 1.0), random_like({wide, hidden}, 2, 0.3), random_like({wide}, 3, 0.5),
          random_like({hidden, wide}, 4, 0.3)};
}

Tensors qkv_inputs(int64_t tokens, int64_t hidden) {
  Tensors inputs = {random_like({tokens, hidden}, 1, 1.0)};
  for (int64_t i = 0; i < 3; ++i) inputs.push_back(random_like({hidden, hidden}, 2 + i, 0.3));
  for (int64_t i = 0; i < 3; ++i) inputs.push_back(random_like({hidden}, 5 + i, 0.5));
  return inputs;
}

using Block = std::function<ops::BesideResidual(const Tensors&)>;

Block feed_forward(ops::Gelu form) {
  return [form](const Tensors& in) {
    return ops::feed_forward_beside_residual(in[0], {.wide = in[1], .bias = in[2], .narrow = in[3]}, form);
  };
}
ops::BesideResidual qkv(const Tensors& in) {
  return ops::qkv_linear_beside_residual(in[0], {in[1], in[2], in[3], in[4], in[5], in[6]});
}

/// A loss of both outputs.
Tensor loss_of(const ops::BesideResidual& block) {
  const Tensor weights = at::linspace(-1, 1, block.result.numel(), at::kDouble).view(block.result.sizes()).cos();
  const Tensor result = block.result.to(at::kDouble), residual = block.residual.to(at::kDouble);
  return (result * weights.to(result.device())).sum() + (residual * residual).sum() * 0.1;
}

/// Leaves with these values.
Tensors leaves(const Tensors& values, const at::TensorOptions& options) {
  Tensors result;
  for (const Tensor& value : values) {
    result.push_back(value.detach().to(options, /*non_blocking=*/false, /*copy=*/true).requires_grad_());
  }
  return result;
}

double error_of(const Tensor& got, const Tensor& expected) {
  return (got.detach().cpu().to(at::kDouble) - expected.detach()).norm().item<double>() /
         expected.detach().norm().item<double>();
}

struct Accuracy {
  Precision precision;
  double bound;
};

/// The block on the device, with gradients added to ones in .grad, twice, and without .grad.
void check_block(const Block& block, const Tensors& values, c10::Device device, const Accuracy& accuracy) {
  const Tensors exact = leaves(values, at::kDouble);
  const ops::BesideResidual expected = block(exact);
  loss_of(expected).backward();

  Tensors in = leaves(values, at::TensorOptions().dtype(at::kFloat).device(device));
  const auto run = [&] {
    const AutocastGuard autocast(device.type(), accuracy.precision);
    return block(in);
  };
  for (const Tensor& leaf : in) leaf.mutable_grad() = at::ones_like(leaf);
  const ops::BesideResidual got = run();
  CHECK(error_of(got.result, expected.result) < accuracy.bound);
  CHECK(error_of(got.residual, expected.residual) < accuracy.bound);
  const Tensors apart = torch::autograd::grad({loss_of(run())}, in);
  for (int64_t times = 1; times <= 2; ++times) {
    loss_of(run()).backward();
    for (size_t i = 0; i < in.size(); ++i) {
      INFO("input " << i << ", backward " << times);
      CHECK(error_of((in[i].grad() - 1.0) / static_cast<double>(times), exact[i].grad()) < accuracy.bound);
    }
  }
  for (size_t i = 0; i < in.size(); ++i) CHECK(error_of(apart[i], exact[i].grad()) < accuracy.bound);
}

constexpr Accuracy kFp32{Precision::kFp32, 1e-6}, kBf16{Precision::kBf16, 1e-2}, kFp16{Precision::kFp16, 2e-3};

TEST_CASE("Blocks beside a residual have the values and gradients of their definition", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  for (const Accuracy& accuracy : {kFp32, kBf16, kFp16}) {
    INFO(name_of_value(accuracy.precision));
    for (const ops::Gelu form : {ops::Gelu::kTanh, ops::Gelu::kErf}) {
      check_block(feed_forward(form), feed_forward_inputs(24, 16, 48), device, accuracy);
    }
    check_block(qkv, qkv_inputs(24, 16), device, accuracy);
  }
}

TEST_CASE("Other kernels take over where cuBLASLt has no product with an epilogue", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const Tensors odd = feed_forward_inputs(24, 16, 20);  // rows of 20 are no whole vectors
  const auto check = [&] { check_block(feed_forward(ops::Gelu::kTanh), odd, device, kBf16); };
  CHECK_THAT(warning_of(check), Contains("cuBLASLt has no algorithm for a product"));
  CHECK(warning_of(check).empty());  // it is said once
}

TEST_CASE("Other kernels take over where cuBLASLt computes an epilogue wrongly", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  null_device::set_product_handler([](const null_device::MatrixProduct& product) {
    null_device::MatrixProduct wrong = product;
    if (product.auxiliary != nullptr) wrong.alpha = 1.1;
    null_device::multiply(wrong);
  });
  const std::string warning =
      warning_of([&] { check_block(feed_forward(ops::Gelu::kTanh), feed_forward_inputs(24, 16, 56), device, kBf16); });
  null_device::set_product_handler(null_device::multiply);
  CHECK_THAT(warning, Contains("cuBLASLt computes a product wrongly"));
}

TEST_CASE("A weight that a backward uses twice gets both gradients", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const Tensor x = random_like({8, 16}, 1, 1.0), w = random_like({16, 16}, 2, 0.3);
  const auto loss = [](const Tensor& input, const Tensor& weight) {
    const Tensor y = ops::linear(ops::linear(input, weight, {}), weight, {});
    return (y * y).sum();
  };
  const Tensors exact = leaves({x, w}, at::kDouble), in = leaves({x, w}, at::TensorOptions(at::kFloat).device(device));
  loss(exact[0], exact[1]).backward();
  in[1].mutable_grad() = at::zeros_like(in[1]);
  loss(in[0], in[1]).backward();
  CHECK(error_of(in[1].grad(), exact[1].grad()) < 1e-6);
}

TEST_CASE("A hook of a parameter sees its gradient", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const Tensors in = leaves({random_like({8, 16}, 1, 1.0), random_like({16, 16}, 2, 0.3)},
                            at::TensorOptions(at::kFloat).device(device));
  in[1].mutable_grad() = at::zeros_like(in[1]);
  in[1].register_hook([](const Tensor& gradient) { return gradient * 2; });
  ops::linear(in[0], in[1], {}).sum().backward();
  const Tensor expected = in[0].detach().sum(0).cpu().to(at::kDouble).expand({16, 16}) * 2;
  CHECK(error_of(in[1].grad(), expected) < 1e-6);
}

}  // namespace
