// The optimizer's vector kernels: every instruction set gives the same bits, and those of plain ATen within fp32.
#include "cuda_ext/multi_tensor.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <limits>
#include <vector>

#include "cuda_ext/multi_tensor_cpu.h"
#include "tests/testing.h"

namespace bert {
namespace {

using at::Tensor;
using ops::OptimizerTensors;
using ops::StepScalars;

/// Sizes around the lanes, the block and the chunk of the kernels.
const std::vector<int64_t> kSizes{1, 7, 8, 9, 255, 257, 32768, 32769, 100003};

OptimizerTensors random_tensors(at::ScalarType copy_dtype = at::kFloat) {
  at::manual_seed(11);
  OptimizerTensors tensors;
  for (const int64_t size : kSizes) {
    tensors.params.push_back(at::randn({size}));
    tensors.grads.push_back(at::randn({size}));
    tensors.exp_avg.push_back(at::randn({size}));
    tensors.exp_avg_sq.push_back(at::rand({size}));
    tensors.copies.push_back(copy_dtype == at::kFloat ? Tensor() : at::zeros({size}, copy_dtype));
  }
  return tensors;
}

StepScalars scalars(bool skip = false) {
  const auto number = [](double value) { return at::scalar_tensor(value, at::kDouble); };
  return {.lr = number(6e-3),
          .multiplier = number(0.37),
          .correction1 = number(0.271),
          .correction2 = number(0.003),
          .skip = at::scalar_tensor(skip, at::kBool)};
}

constexpr ops::LambParameters kLamb{.beta1 = 0.9,
                                    .beta2 = 0.999,
                                    .beta3 = 0.1,
                                    .eps = 1e-6,
                                    .weight_decay = 0.01,
                                    .decoupled = true,
                                    .trust_ratio = true};
constexpr ops::AdamwParameters kAdamw{.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01};

std::vector<CpuCapability> capabilities() {
  std::vector<CpuCapability> result{CpuCapability::kPlain};
  if (cpu_capability() != CpuCapability::kPlain) result.push_back(CpuCapability::kAvx2);
  if (cpu_capability() == CpuCapability::kAvx512) result.push_back(CpuCapability::kAvx512);
  return result;
}

bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].defined() && !a[i].equal(b[i])) return false;
  }
  return true;
}

void check_same(const OptimizerTensors& a, const OptimizerTensors& b) {
  CHECK(same(a.params, b.params));
  CHECK(same(a.exp_avg, b.exp_avg));
  CHECK(same(a.exp_avg_sq, b.exp_avg_sq));
  CHECK(same(a.copies, b.copies));
}

/// The fp64 tensors take the ATen path, in fp64.
OptimizerTensors in_double(const OptimizerTensors& tensors) {
  OptimizerTensors result = tensors;
  for (auto* list : {&result.params, &result.grads, &result.exp_avg, &result.exp_avg_sq}) {
    for (Tensor& tensor : *list) tensor = tensor.to(at::kDouble);
  }
  return result;
}

void check_close(const OptimizerTensors& got, const OptimizerTensors& want) {
  for (size_t i = 0; i < kSizes.size(); ++i) {
    INFO("size " << kSizes[i]);
    CHECK(at::allclose(got.params[i].to(at::kDouble), want.params[i], 1e-6, 1e-6));
    CHECK(at::allclose(got.exp_avg[i].to(at::kDouble), want.exp_avg[i], 1e-6, 1e-7));
    CHECK(at::allclose(got.exp_avg_sq[i].to(at::kDouble), want.exp_avg_sq[i], 1e-6, 1e-7));
  }
}

}  // namespace

TEST_CASE("Every instruction set and number of threads gives the same bits", "[optim]") {
  for (const auto copy_dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    OptimizerTensors lamb = random_tensors(copy_dtype), adamw = random_tensors(copy_dtype);
    ops::cpu::lamb(lamb, scalars(), kLamb, ops::cpu::optim_kernels(CpuCapability::kPlain));
    ops::cpu::adamw(adamw, scalars(), kAdamw, ops::cpu::optim_kernels(CpuCapability::kPlain));
    const double norm = ops::cpu::l2_norm(lamb.params, ops::cpu::optim_kernels(CpuCapability::kPlain));
    const int threads = at::get_num_threads();
    for (const int count : {1, 2, 3}) {
      at::set_num_threads(count);
      for (const CpuCapability capability : capabilities()) {
        INFO("capability " << static_cast<int>(capability) << ", threads " << count);
        const OptimKernels& kernels = ops::cpu::optim_kernels(capability);
        OptimizerTensors again = random_tensors(copy_dtype);
        ops::cpu::lamb(again, scalars(), kLamb, kernels);
        check_same(again, lamb);
        again = random_tensors(copy_dtype);
        ops::cpu::adamw(again, scalars(), kAdamw, kernels);
        check_same(again, adamw);
        CHECK(ops::cpu::l2_norm(lamb.params, kernels) == norm);
      }
    }
    at::set_num_threads(threads);
  }
}

TEST_CASE("The vector kernels equal ATen in fp64", "[optim]") {
  for (const bool decoupled : {true, false}) {
    for (const bool trust_ratio : {true, false}) {
      ops::LambParameters parameters = kLamb;
      parameters.decoupled = decoupled;
      parameters.trust_ratio = trust_ratio;
      OptimizerTensors got = random_tensors(), want = in_double(got);
      ops::multi_tensor_lamb(want, scalars(), parameters);
      ops::multi_tensor_lamb(got, scalars(), parameters);
      check_close(got, want);
    }
  }
  OptimizerTensors got = random_tensors(), want = in_double(got);
  ops::multi_tensor_adamw(want, scalars(), kAdamw);
  ops::multi_tensor_adamw(got, scalars(), kAdamw);
  check_close(got, want);
  const double norm = ops::multi_tensor_l2_norm(want.grads).item<double>();
  CHECK(ops::multi_tensor_l2_norm(got.grads).item<double>() == testing::Approx(norm).epsilon(1e-12));
}

TEST_CASE("skip leaves every bit, in fp32 and in ATen's path", "[optim]") {
  for (const bool as_double : {false, true}) {
    OptimizerTensors tensors = random_tensors(at::kBFloat16);
    if (as_double) tensors = in_double(tensors);
    tensors.grads[3].fill_(std::numeric_limits<double>::quiet_NaN());
    OptimizerTensors before = tensors;
    for (auto* list : {&before.params, &before.exp_avg, &before.exp_avg_sq, &before.copies}) {
      for (Tensor& tensor : *list) tensor = tensor.clone();
    }
    ops::multi_tensor_lamb(tensors, scalars(true), kLamb);
    ops::multi_tensor_adamw(tensors, scalars(true), kAdamw);
    check_same(tensors, before);
  }
}

TEST_CASE("Low-precision copies are rounded as ATen rounds", "[optim]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  at::manual_seed(3);
  // Every exponent, ties, the edges of fp16 (65504, 65520, 2^-14, 2^-24, 2^-25) and of bf16, zeros and NaN.
  const std::vector<float> edges{0.0F,           -0.0F,          nan,
                                 65504.0F,       65519.996F,     65520.0F,
                                 -65520.0F,      6.1035156e-05F, 6.1e-05F,
                                 5.9604645e-08F, 2.9802322e-08F, 2.9802326e-08F,
                                 8.940697e-08F,  1.0F,           1.00048828125F,
                                 1.00146484375F, 1.00390625F,    1.01171875F,
                                 3.4e38F,        1e-45F};
  const Tensor values =
      at::cat({at::tensor(edges), at::randn({200000}) * at::exp2(at::randint(-40, 40, {200000}).to(at::kFloat))});
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    for (const CpuCapability capability : capabilities()) {
      OptimizerTensors tensors{.params = {values.clone()},
                               .copies = {at::zeros({values.numel()}, dtype)},
                               .grads = {at::zeros_like(values)},
                               .exp_avg = {at::zeros_like(values)},
                               .exp_avg_sq = {at::zeros_like(values)}};
      ops::AdamwParameters still = kAdamw;
      still.weight_decay = 0.0;
      ops::cpu::adamw(tensors, scalars(), still, ops::cpu::optim_kernels(capability));
      const Tensor got = tensors.copies[0], want = tensors.params[0].to(dtype);
      const Tensor equal =
          got.view(at::kShort).eq(want.view(at::kShort)).logical_or_(got.isnan().logical_and(want.isnan()));
      CHECK(equal.all().item<bool>());
    }
  }
}

TEST_CASE("The norm sees one inf or NaN anywhere, and large finite values do not overflow", "[optim]") {
  for (const int64_t position : {0L, 255L, 32768L, 100002L}) {
    for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      Tensor tensor = at::zeros({100003});
      tensor[position].fill_(value);
      CHECK_FALSE(ops::multi_tensor_l2_norm({tensor}).isfinite().item<bool>());
    }
  }
  CHECK(ops::multi_tensor_l2_norm({at::full({4}, 3e38F)}).item<double>() == testing::Approx(6e38).epsilon(1e-6));
  CHECK_THROWS_WITH(ops::multi_tensor_l2_norm({}), testing::Contains("empty"));
}

}  // namespace bert
