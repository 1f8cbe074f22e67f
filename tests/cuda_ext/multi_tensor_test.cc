// The optimizer's vector kernels: every instruction set gives the same bits, and they equal plain ATen within fp32.
#include "cuda_ext/multi_tensor.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <vector>

#include "cuda_ext/multi_tensor/cpu.h"
#include "tests/bench/plain_operators.h"
#include "tests/support/mismatch.h"
#include "tests/testing.h"

namespace bert {
namespace {

using at::Tensor;
using ops::OptimizerTensors;
using ops::StepTensors;

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
    tensors.ema.push_back(size % 2 == 0 ? Tensor() : at::randn({size}));
    tensors.copies.push_back(copy_dtype == at::kFloat ? Tensor() : at::zeros({size}, copy_dtype));
  }
  return tensors;
}

/// The scalars of a third step.
StepTensors scalars() {
  return {.lr = at::scalar_tensor(6e-3, at::kDouble),
          .inv_scale = at::scalar_tensor(0.37, at::kDouble),
          .found_inf = at::zeros({}),
          .step = at::full({}, 2, at::kLong),
          .grad_norm = at::zeros({}),
          .skipped = at::zeros({})};
}

constexpr UpdateOptions kLamb{.lr = 1.0,
                              .beta1 = 0.9,
                              .beta2 = 0.999,
                              .beta3 = 0.1,
                              .eps = 1e-6,
                              .weight_decay = 0.01,
                              .max_grad_norm = 100.0,
                              .ema_decay = 0.9};
constexpr UpdateOptions kAdamw{.lr = 1.0,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .beta3 = 0.1,
                               .eps = 1e-8,
                               .weight_decay = 0.01,
                               .max_grad_norm = 100.0,
                               .clip_eps = 1e-6,
                               .ema_decay = 0.9,
                               .trust_ratio = false};

const UpdateOptions& options_of(UpdateRule rule) { return rule == UpdateRule::kLamb ? kLamb : kAdamw; }
constexpr UpdateRule kRules[] = {UpdateRule::kLamb, UpdateRule::kAdamw, UpdateRule::kStableAdamw};

void run(UpdateRule rule, const OptimizerTensors& tensors, const UpdateOptions& options) {
  ops::OptimizerStep(rule).run({tensors}, {options}, scalars());
}

/// Runs the step with the loops of one instruction set.
void run(UpdateRule rule, const OptimizerTensors& tensors, CpuCapability capability) {
  ops::cpu::make_step(rule, {tensors}, optim_kernels(capability))->run({tensors}, {options_of(rule)}, scalars());
}

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
  CHECK(same(a.ema, b.ema));
}

/// The tensors in fp64, which take the ATen path.
OptimizerTensors in_double(const OptimizerTensors& tensors) {
  OptimizerTensors result = tensors;
  for (auto* list : {&result.params, &result.grads, &result.exp_avg, &result.exp_avg_sq, &result.ema}) {
    for (Tensor& tensor : *list) {
      if (tensor.defined()) tensor = tensor.to(at::kDouble);
    }
  }
  return result;
}

void check_close(const OptimizerTensors& got, const OptimizerTensors& want) {
  for (size_t i = 0; i < kSizes.size(); ++i) {
    INFO("size " << kSizes[i]);
    CHECK(testing::mismatch(got.params[i], want.params[i], {1e-6, 1e-6}) == "");
    CHECK(testing::mismatch(got.exp_avg[i], want.exp_avg[i], {1e-7, 1e-6}) == "");
    CHECK(testing::mismatch(got.exp_avg_sq[i], want.exp_avg_sq[i], {1e-7, 1e-6}) == "");
    if (got.ema[i].defined()) CHECK(testing::mismatch(got.ema[i], want.ema[i], {1e-6, 1e-6}) == "");
  }
}

}  // namespace

TEST_CASE("Every instruction set and number of threads gives the same bits", "[unit][optim]") {
  const int threads = at::get_num_threads();
  for (const auto copy_dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const UpdateRule rule : kRules) {
      const OptimizerTensors first = random_tensors(copy_dtype);
      run(rule, first, CpuCapability::kPlain);
      const std::vector<Tensor> listed = copy_dtype == at::kFloat ? first.params : first.copies;
      const double norm = ops::MultiTensor().norm(listed).item<double>();
      for (const int count : {1, 2, 3}) {
        at::set_num_threads(count);
        for (const CpuCapability capability : capabilities()) {
          INFO("capability " << static_cast<int>(capability) << ", threads " << count);
          const OptimizerTensors again = random_tensors(copy_dtype);
          run(rule, again, capability);
          check_same(again, first);
          const auto list = ops::cpu::make_list(listed, optim_kernels(capability));
          CHECK(list->norm(listed).item<double>() == norm);
        }
      }
      at::set_num_threads(threads);
    }
  }
}

TEST_CASE("The vector loops equal ATen in fp64", "[unit][optim]") {
  for (const UpdateRule rule : kRules) {
    for (const bool decoupled : {true, false}) {
      for (const bool trust_ratio : {true, false}) {
        for (const double max_grad_norm : {0.0, 1.0, 100.0}) {
          if (rule != UpdateRule::kLamb && trust_ratio) continue;
          UpdateOptions options = options_of(rule);
          options.decoupled = decoupled;
          options.trust_ratio = trust_ratio;
          options.max_grad_norm = max_grad_norm;
          options.bias_correction = max_grad_norm != 0.0;
          const OptimizerTensors got = random_tensors(), want = in_double(got);
          run(rule, want, options);
          run(rule, got, options);
          check_close(got, want);
        }
      }
    }
  }
}

TEST_CASE("The vector loops equal ATen in fp64 with the options of the published variants", "[unit][optim]") {
  for (const UpdateRule rule : kRules) {
    std::vector<UpdateOptions> variants(5, options_of(rule));
    variants[0].eps = 0.01;
    variants[1].clip_per_tensor = true;
    variants[2].lr_scale = 0.25;
    variants[3].ema_decay = 0.2;
    variants[4].clip_eps = 50.0;
    for (const UpdateOptions& options : variants) {
      const OptimizerTensors got = random_tensors(), want = in_double(got), plain = random_tensors();
      run(rule, want, options);
      run(rule, got, options);
      check_close(got, want);
      run(rule, plain, options_of(rule));
      CHECK(same(plain.params, got.params) == (options.ema_decay == 0.2));  // the option has an effect
      CHECK_FALSE(same(plain.ema, got.ema));
    }
  }
}

TEST_CASE("Lists: the loops equal ATen in fp64, empty tensors and mixed dtypes included", "[unit][optim]") {
  for (const auto& dtypes : {std::vector{at::kFloat}, {at::kHalf}, {at::kBFloat16, at::kFloat, at::kHalf}}) {
    std::vector<Tensor> tensors = random_tensors().grads, doubles;
    tensors.push_back(at::empty({0}));
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i] = tensors[i].to(dtypes[i % dtypes.size()]);
    for (const Tensor& tensor : tensors) doubles.push_back(tensor.to(at::kDouble));
    ops::MultiTensor loops, reference;
    const double tolerance = dtypes[0] == at::kBFloat16 ? 1e-7 : 1e-12;  // the squares of bf16 are summed in fp32
    CHECK(loops.norm(tensors).item<double>() ==
          testing::Approx(reference.norm(doubles).item<double>()).epsilon(tolerance));
    const Tensor norms = loops.norms(tensors), want = reference.norms(doubles);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const double own = tensors[i].scalar_type() == at::kBFloat16 ? tolerance : 1e-12;
      CHECK(testing::mismatch(norms[static_cast<int64_t>(i)], want[static_cast<int64_t>(i)], {0.0, own}) == "");
    }
    const Tensor found_inf = at::zeros({});
    loops.unscale_(tensors, at::scalar_tensor(0.5F), found_inf);
    reference.unscale_(doubles, at::scalar_tensor(0.5F), found_inf);
    for (size_t i = 0; i < tensors.size(); ++i) {
      CHECK(tensors[i].equal(doubles[i].to(tensors[i].scalar_type())));  // half of fp16's smallest number is rounded
    }
    CHECK(found_inf.item<float>() == 0.0F);
  }
}

TEST_CASE("Lists: norms of bf16 are right at any magnitude, and the same bits with every instruction set",
          "[unit][optim]") {
  const Tensor random = at::rand({5000}) + 0.5;
  for (const double magnitude : {1e-38, 1e-30, 1e-20, 1e-12, 1.0, 1e18, 1e20, 1e37}) {
    const Tensor tensor = (random * magnitude).to(at::kBFloat16), mixed = tensor.clone();
    mixed.slice(0, 0, 2048) = 0;
    mixed[2050] = magnitude * magnitude < 1e37 ? magnitude * magnitude : 1.0;
    for (const Tensor& x : {tensor, mixed}) {
      const Tensor want = x.to(at::kDouble).norm();
      Tensor first;
      for (const CpuCapability capability : capabilities()) {
        const Tensor got = ops::cpu::make_list({x}, optim_kernels(capability))->norm({x}).clone();
        CHECK(got.item<double>() == testing::Approx(want.item<double>()).epsilon(1e-7));
        if (!first.defined()) first = got;
        CHECK(got.equal(first));
      }
    }
  }
}

TEST_CASE("Lists: every number of fp16 and bf16 is normed and unscaled as ATen converts it", "[unit][optim]") {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    const Tensor every = at::arange(-32768, 32768, at::kInt).to(at::kShort).view(dtype), wide = every.to(at::kFloat),
                 finite = wide.isfinite();
    for (const CpuCapability capability : capabilities()) {
      const std::vector<Tensor> tensors{every.clone(), every.masked_select(finite).contiguous()};
      const auto list = ops::cpu::make_list(tensors, optim_kernels(capability));
      const Tensor norms = list->norms(tensors);
      CHECK_FALSE(norms[0].isfinite().item<bool>());
      CHECK(norms[1].item<double>() ==
            testing::Approx(wide.masked_select(finite).to(at::kDouble).norm().item<double>()).epsilon(1e-12));
      const Tensor found_inf = at::zeros({});
      list->unscale_(tensors, at::scalar_tensor(0.3F), found_inf);
      CHECK(found_inf.item<float>() == 1.0F);
      const Tensor want = (wide * 0.3F).to(dtype);
      CHECK(tensors[0].masked_select(finite).view(at::kShort).equal(want.masked_select(finite).view(at::kShort)));
      CHECK(tensors[0].isnan().equal(wide.isnan()));
      CHECK(tensors[0].isinf().equal(wide.isinf()));
    }
  }
}

TEST_CASE("One object serves tensors that move, grow, shrink and change their dtype", "[unit][optim]") {
  ops::MultiTensor multi;
  for (const auto dtype : {at::kFloat, at::kFloat, at::kDouble, at::kHalf, at::kFloat}) {
    for (const int64_t sizes : {3, 5, 5, 2}) {
      std::vector<Tensor> tensors;
      for (int64_t i = 1; i <= sizes; ++i) tensors.push_back(at::full({i}, 2.0, dtype));
      CHECK(multi.norm(tensors).item<double>() == testing::Approx(2.0 * std::sqrt(sizes * (sizes + 1) / 2)));
      CHECK(multi.norms(tensors)[sizes - 1].item<double>() == testing::Approx(2.0 * std::sqrt(sizes)));
      const Tensor found_inf = at::zeros({});
      multi.unscale_(tensors, at::scalar_tensor(0.25F), found_inf);
      CHECK(tensors.back().equal(at::full({sizes}, 0.5, dtype)));
    }
  }

  for (const UpdateRule rule : kRules) {
    ops::OptimizerStep moving(rule);
    for (const auto copy_dtype : {at::kFloat, at::kHalf, at::kBFloat16, at::kFloat}) {
      for (int step = 0; step < 2; ++step) {
        const OptimizerTensors got = random_tensors(copy_dtype), want = random_tensors(copy_dtype);
        moving.run({got}, {options_of(rule)}, scalars());
        run(rule, want, options_of(rule));
        check_same(got, want);
      }
    }
    const OptimizerTensors got = random_tensors(), want = random_tensors();
    moving.run({got, {}}, {options_of(rule), options_of(rule)}, scalars());
    run(rule, want, options_of(rule));
    check_same(got, want);
  }
}

TEST_CASE("The plain step that benchmarks time does what every option says", "[unit][optim]") {
  const auto plain_run = [](UpdateRule rule, const OptimizerTensors& tensors, const UpdateOptions& options,
                            const StepTensors& step) { plain::step(rule, {tensors}, {options}, step); };
  for (const UpdateRule rule : kRules) {
    const OptimizerTensors usual = random_tensors();
    run(rule, usual, options_of(rule));
    const auto check = [&](const char* name, const auto& change) {
      CAPTURE(name);
      UpdateOptions options = options_of(rule);
      change(options);
      const OptimizerTensors ours = random_tensors(), plain = random_tensors();
      run(rule, ours, options);
      plain_run(rule, plain, options, scalars());
      check_close(plain, ours);
      CHECK_FALSE(same(plain.params, usual.params));  // the option has an effect
    };
    check("lr_scale", [](UpdateOptions& o) { o.lr_scale = 0.5; });
    check("clip_per_tensor", [](UpdateOptions& o) { o.clip_per_tensor = true, o.max_grad_norm = 1.0; });
    check("decoupled", [](UpdateOptions& o) { o.decoupled = false; });
    for (const bool by_gradient : {true, false}) {
      const OptimizerTensors tensors = random_tensors();
      const StepTensors step = scalars();
      if (by_gradient) {
        tensors.grads[3][2].fill_(INFINITY);
      } else {
        step.found_inf.fill_(1.0);
      }
      plain_run(rule, tensors, options_of(rule), step);
      check_same(tensors, random_tensors());
      CHECK(step.skipped.item<float>() == 1.0F);
      CHECK(step.step.item<int64_t>() == 2);
    }
  }
}

TEST_CASE("Lists and steps keep none of their tensors", "[unit][optim]") {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    ops::MultiTensor multi;
    ops::OptimizerStep step(UpdateRule::kLamb);
    OptimizerTensors group = random_tensors();
    if (dtype == at::kDouble) group = in_double(group);
    multi.unscale_(group.grads, at::ones({}), at::zeros({}));
    step.run({group}, {kLamb}, scalars());
    for (const auto* list : {&group.params, &group.grads, &group.exp_avg, &group.exp_avg_sq, &group.ema}) {
      for (const Tensor& tensor : *list) CHECK((!tensor.defined() || tensor.use_count() == 1));
    }
  }
}

TEST_CASE("Lists and steps refuse what does not belong together", "[unit][optim]") {
  CHECK_THROWS_WITH(ops::MultiTensor().norm({}), testing::Contains("empty"));
  for (const auto dtype : {at::kLong, at::kInt, at::kFloat8_e4m3fn}) {
    CHECK_THROWS_WITH(
        ops::MultiTensor().norm({at::ones({2}).to(dtype)}),
        testing::Contains(c10::str("got ", dtype)) && testing::Contains("expected Float, Double, Half or BFloat16"));
  }
  const auto refused = [](const std::vector<OptimizerTensors>& groups, const char* message) {
    CHECK_THROWS_WITH(
        ops::OptimizerStep(UpdateRule::kLamb).run(groups, std::vector<UpdateOptions>(groups.size(), kLamb), scalars()),
        testing::Contains(message));
  };
  OptimizerTensors group = random_tensors();
  group.grads.pop_back();
  refused({group}, "a group of 9 params has");
  group = random_tensors();
  group.grads[1] = at::ones({6});
  refused({group}, "with a param of [7] on cpu comes a gradient, moment, copy or average of [6] on cpu");
  group = random_tensors();
  group.exp_avg[2] = at::ones({8}, at::kMeta);
  refused({group}, "with a param of [8] on cpu comes a gradient, moment, copy or average of [8] on meta");
  group = random_tensors();
  group.params[0] = at::ones({1}, at::kHalf);
  refused({group}, "got a param of Half, expected Float or Double");
  for (const auto dtype : {at::kShort, at::kFloat}) {
    group = random_tensors();
    group.copies[3] = at::ones({9}, dtype);
    refused({group}, "got a copy of ");
  }
  for (const auto list :
       {&OptimizerTensors::grads, &OptimizerTensors::exp_avg, &OptimizerTensors::exp_avg_sq, &OptimizerTensors::ema}) {
    group = random_tensors();
    (group.*list)[1] = at::ones({7}, at::kBFloat16);
    refused({group}, "with a param of Float comes a gradient, moment or average of BFloat16, expected Float");
  }
  refused({{}}, "no tensors");
  ops::OptimizerStep step(UpdateRule::kLamb);
  CHECK_THROWS_WITH(step.run({random_tensors()}, {}, scalars()), testing::Contains("options for 0 groups, expected 1"));

  ops::MultiTensor multi;  // a refused list is not mistaken for the one before
  CHECK(multi.norm({at::ones({4})}).item<double>() == 2.0);
  CHECK_THROWS_WITH(multi.norm({at::ones({4}), at::ones({2}, at::kLong)}), testing::Contains("got Long"));
  CHECK(multi.norm({at::ones({4})}).item<double>() == 2.0);
}

TEST_CASE("Scalars of another device, dtype or shape are refused by name", "[unit][optim]") {
  const std::vector<Tensor> tensors{at::ones({3})};
  ops::MultiTensor multi;
  for (const Tensor& wrong : {at::ones({}, at::kMeta), at::ones({}, at::kDouble), at::ones({2}), Tensor()}) {
    INFO((wrong.defined() ? wrong.toString() : "undefined"));
    CHECK_THROWS_WITH(
        multi.unscale_(tensors, wrong, at::zeros({})),
        testing::Contains("MultiTensor::unscale_: inv_scale is ") &&
            testing::Contains("expected a 0-dimensional tensor of Float on cpu, the device of the tensors"));
    CHECK_THROWS_WITH(multi.unscale_(tensors, at::ones({}), wrong), testing::Contains("found_inf is "));
  }
  CHECK_THROWS_WITH(multi.unscale_(tensors, at::ones({2}), at::zeros({})), testing::Contains("inv_scale is Float [2]"));
  CHECK(tensors[0].equal(at::ones({3})));

  const OptimizerTensors group = random_tensors(), before = random_tensors();
  for (Tensor StepTensors::*member : {&StepTensors::lr, &StepTensors::inv_scale, &StepTensors::found_inf,
                                      &StepTensors::step, &StepTensors::grad_norm, &StepTensors::skipped}) {
    const Tensor right = scalars().*member;
    for (const Tensor& wrong :
         {right.to(at::kMeta), right.to(at::kInt), right.expand({2}).clone(), right.reshape({1})}) {
      StepTensors step = scalars();
      step.*member = wrong;
      CHECK_THROWS_WITH(ops::OptimizerStep(UpdateRule::kLamb).run({group}, {kLamb}, step),
                        testing::Contains("OptimizerStep::run: ") && testing::Contains("expected a 0-dimensional"));
    }
  }
  StepTensors step = scalars();
  step.step = Tensor();
  CHECK_THROWS_WITH(ops::OptimizerStep(UpdateRule::kLamb).run({group}, {kLamb}, step),
                    testing::Contains("step is undefined, expected a 0-dimensional tensor of Long on cpu"));
  step = scalars();
  step.lr = at::ones({}, at::kMeta);
  CHECK_THROWS_WITH(ops::OptimizerStep(UpdateRule::kLamb).run({group}, {kLamb}, step),
                    testing::Contains("lr is Float [] on meta, expected a 0-dimensional tensor of Float or Double"));
  check_same(group, before);
}

TEST_CASE("A skipped step leaves every bit, in fp32 and in ATen's path", "[unit][optim]") {
  for (const bool as_double : {false, true}) {
    for (const bool found : {false, true}) {
      OptimizerTensors tensors = random_tensors(at::kBFloat16);
      if (as_double) tensors = in_double(tensors);
      if (!found) tensors.grads[3].fill_(std::numeric_limits<double>::quiet_NaN());
      OptimizerTensors before = tensors;
      for (auto* list : {&before.params, &before.exp_avg, &before.exp_avg_sq, &before.copies, &before.ema}) {
        for (Tensor& tensor : *list) {
          if (tensor.defined()) tensor = tensor.clone();
        }
      }
      for (const UpdateRule rule : kRules) {
        StepTensors step = scalars();
        if (found) step.found_inf.fill_(1.0);
        ops::OptimizerStep(rule).run({tensors}, {options_of(rule)}, step);
        check_same(tensors, before);
        CHECK(step.skipped.item<float>() == 1.0F);
        CHECK(step.step.item<int64_t>() == 2);
      }
    }
  }
}

TEST_CASE("Low-precision copies are rounded as ATen rounds", "[unit][optim]") {
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
                               .exp_avg_sq = {at::zeros_like(values)},
                               .ema = {Tensor()}};
      UpdateOptions still = kAdamw;
      still.weight_decay = 0.0;
      ops::cpu::make_step(UpdateRule::kAdamw, {tensors}, optim_kernels(capability))->run({tensors}, {still}, scalars());
      const Tensor got = tensors.copies[0], want = tensors.params[0].to(dtype);
      const Tensor equal =
          got.view(at::kShort).eq(want.view(at::kShort)).logical_or_(got.isnan().logical_and(want.isnan()));
      CHECK(equal.all().item<bool>());
    }
  }
}

TEST_CASE("The norm sees one inf or NaN anywhere, and large finite values do not overflow", "[unit][optim]") {
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const int64_t position : {0L, 255L, 32768L, 100002L}) {
      for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        Tensor tensor = at::zeros({100003}, dtype);
        tensor[position].fill_(value);
        CHECK_FALSE(ops::MultiTensor().norm({tensor}).isfinite().item<bool>());
      }
    }
  }
  CHECK(ops::MultiTensor().norm({at::full({4}, 3e38F)}).item<double>() == testing::Approx(6e38).epsilon(1e-6));
}

TEST_CASE("The norm counts elements in 64 bits", "[unit][optim]") {
  constexpr int64_t kCount = (int64_t{1} << 31) + 9;
  // Never written, so that its pages take no memory.
  const std::unique_ptr<float, decltype(&std::free)> zeros(
      static_cast<float*>(std::calloc(static_cast<size_t>(kCount), sizeof(float))), &std::free);
  if (!zeros) BERT_SKIP("no 8.6 GB of addresses for a tensor of more than 2^31 elements");
  zeros.get()[0] = 3;
  zeros.get()[kCount - 1] = 4;
  CHECK(ops::MultiTensor().norm({at::from_blob(zeros.get(), {kCount})}).item<double>() == 5);
}

}  // namespace bert
