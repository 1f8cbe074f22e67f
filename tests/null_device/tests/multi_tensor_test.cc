// cuda_ext/multi_tensor/cuda.cc on the second device, while the first is the current one: each function compared with
// the implementation for the CPU.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cuda_ext/multi_tensor/backend.h"
#include "cuda_ext/multi_tensor/cpu.h"
#include "tests/null_device/tests/device_testing.h"
#include "tests/support/mismatch.h"

namespace bert {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using at::Tensor;
using ops::OptimizerTensors;
using ops::StepTensors;
using Groups = std::vector<OptimizerTensors>;

/// Sizes around the vectors, the block and the chunk of the kernels.
const std::vector<int64_t> kSizes{1, 4, 7, 255, 16384, 16385, 40003};

/// A tensor of the values; `shifted`: not aligned to the vectors of the kernels.
Tensor placed(const Tensor& values, bool shifted) {
  const Tensor memory = at::empty({values.numel() + 1}, values.options());
  return memory.narrow(0, shifted ? 1 : 0, values.numel()).copy_(values);
}

struct Layout {
  c10::Device device = kSecond;
  bool shifted = false;
  at::ScalarType copies = at::kFloat;  // kFloat: none
};

/// Two groups, of seven and of three tensors; two of three tensors have a moving average. If the layout is shifted, one
/// of the lists is not aligned in each tensor but two.
Groups random_groups(const Layout& layout) {
  at::manual_seed(5);
  Groups groups;
  int64_t number = 0;
  for (const auto& sizes : {kSizes, std::vector<int64_t>{300, 2, 20000}}) {
    OptimizerTensors& group = groups.emplace_back();
    for (const int64_t size : sizes) {
      const auto place = [&](int64_t list, const Tensor& values) {
        return placed(values.to(layout.device), layout.shifted && list == number % 7);
      };
      group.params.push_back(place(0, at::randn({size})));
      group.grads.push_back(place(1, at::randn({size})));
      group.exp_avg.push_back(place(2, at::randn({size})));
      group.exp_avg_sq.push_back(place(4, at::rand({size}) + 0.5));
      group.ema.push_back(number % 3 == 2 ? Tensor() : place(3, at::randn({size})));
      group.copies.push_back(layout.copies == at::kFloat ? Tensor() : place(6, at::zeros({size}).to(layout.copies)));
      ++number;
    }
  }
  return groups;
}

/// Copies at other addresses.
Groups moved(const Groups& groups) {
  Groups result = groups;
  for (OptimizerTensors& group : result) {
    for (auto* list : {&group.params, &group.copies, &group.grads, &group.exp_avg, &group.exp_avg_sq, &group.ema}) {
      for (Tensor& tensor : *list) {
        if (tensor.defined()) tensor = tensor.clone();
      }
    }
  }
  return result;
}

Tensor number(double value, at::ScalarType type, c10::Device device = kSecond) {
  return at::scalar_tensor(value, at::TensorOptions(device).dtype(type));
}

/// The scalars of a third step.
StepTensors scalars(const Tensor& lr, const Tensor& inv_scale, double found_inf, c10::Device device) {
  return {.lr = lr.defined() ? lr.to(device) : lr,
          .inv_scale = inv_scale.defined() ? inv_scale.to(device) : inv_scale,
          .found_inf = number(found_inf, at::kFloat, device),
          .step = number(2, at::kLong, device),
          .grad_norm = number(-1.0, at::kFloat, device),
          .skipped = number(-1.0, at::kFloat, device)};
}

std::vector<UpdateOptions> options_of(UpdateRule rule) {
  const UpdateOptions first{.lr = 0.05,
                            .beta1 = 0.9,
                            .beta2 = 0.99,
                            .beta3 = 0.1,
                            .eps = 1e-3,
                            .weight_decay = 0.3,
                            .max_grad_norm = 50.0,
                            .ema_decay = 0.8,
                            .trust_ratio = rule == UpdateRule::kLamb};
  UpdateOptions second = first;
  second.lr = 0.2;
  second.weight_decay = 0.0;
  second.trust_ratio = false;
  second.lr_scale = 0.5;
  return {first, second};
}

void check_same(const Groups& got, const Groups& want) {
  for (size_t g = 0; g < want.size(); ++g) {
    const auto check = [&](const char* name, const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
      for (size_t i = 0; i < b.size(); ++i) {
        CAPTURE(name, g, i);
        CHECK(a[i].defined() == b[i].defined());
        if (b[i].defined()) CHECK(mismatch(on_host(a[i]), b[i]) == "");
      }
    };
    check("param", got[g].params, want[g].params);
    check("copy", got[g].copies, want[g].copies);
    check("grad", got[g].grads, want[g].grads);
    check("exp_avg", got[g].exp_avg, want[g].exp_avg);
    check("exp_avg_sq", got[g].exp_avg_sq, want[g].exp_avg_sq);
    check("ema", got[g].ema, want[g].ema);
  }
}

void check_same(const StepTensors& got, const StepTensors& want) {
  CHECK(on_host(got.step).equal(want.step));
  CHECK(on_host(got.skipped).equal(want.skipped));
  CHECK(mismatch(on_host(got.grad_norm), want.grad_norm, {1e-5, 1e-6}) == "");
}

/// A change between the steps of two implementations, which is the same for both.
using Change = std::function<void(Groups& groups, std::vector<UpdateOptions>& options)>;

/// Runs a step, makes the change, and runs another; both implementations give the same tensors.
void check_steps(
    UpdateRule rule, const Layout& layout, const Tensor& lr, const Tensor& inv_scale,
    const Change& change = [](auto&, auto&) {}) {
  CAPTURE(static_cast<int>(rule), layout.shifted, layout.copies, lr.defined(), inv_scale.defined());
  Layout of_cpu = layout;
  of_cpu.device = c10::kCPU;
  Groups got = random_groups(layout), want = random_groups(of_cpu);
  std::vector<UpdateOptions> got_options = options_of(rule), want_options = options_of(rule);
  const auto on_cuda = ops::cuda_multi_tensor().step(rule, got);
  const auto on_cpu = ops::cpu::make_step(rule, want);
  const StepTensors got_scalars = scalars(lr, inv_scale, 0.0, kSecond);
  const StepTensors want_scalars = scalars(lr, inv_scale, 0.0, c10::kCPU);
  for (int step = 0; step < 2; ++step) {
    CAPTURE(step);
    on_cuda->run(got, got_options, got_scalars);
    on_cpu->run(want, want_options, want_scalars);
    check_same(got, want);
    check_same(got_scalars, want_scalars);
    change(got, got_options);
    change(want, want_options);
  }
}

TEST_CASE("CUDA's optimizers equal the CPU's, for groups, copies and any alignment", "[cuda][null_device]") {
  const WaitAtEnd wait;
  for (const UpdateRule rule : {UpdateRule::kLamb, UpdateRule::kAdamw, UpdateRule::kStableAdamw}) {
    for (const bool shifted : {false, true}) {
      for (const at::ScalarType copies : {at::kFloat, at::kHalf, at::kBFloat16}) {
        check_steps(rule, {.shifted = shifted, .copies = copies}, number(0.02, at::kFloat), number(0.25, at::kFloat));
      }
    }
    check_steps(rule, {}, number(0.02, at::kDouble), number(0.25, at::kDouble));
    check_steps(rule, {}, Tensor(), Tensor());  // the rates of the groups, and no scale
  }
}

TEST_CASE("CUDA's optimizers follow tensors that move, and options that change", "[cuda][null_device]") {
  const WaitAtEnd wait;
  Groups kept;  // the earlier tensors live on, so that the new ones have other addresses
  for (const UpdateRule rule : {UpdateRule::kLamb, UpdateRule::kAdamw, UpdateRule::kStableAdamw}) {
    check_steps(rule, {.copies = at::kBFloat16}, number(0.02, at::kFloat), number(0.25, at::kFloat),
                [&](Groups& groups, std::vector<UpdateOptions>& options) {
                  kept.insert(kept.end(), groups.begin(), groups.end());
                  groups = moved(groups);
                  options[0].weight_decay = 0.1;
                  options[1].beta2 = 0.9;
                });
  }
}

TEST_CASE("CUDA's optimizers skip a step with found_inf", "[cuda][null_device]") {
  const WaitAtEnd wait;
  for (const UpdateRule rule : {UpdateRule::kLamb, UpdateRule::kAdamw, UpdateRule::kStableAdamw}) {
    const Groups groups = random_groups({.copies = at::kHalf}), before = random_groups({.copies = at::kHalf});
    const StepTensors step = scalars(number(0.02, at::kFloat), number(0.25, at::kFloat), /*found_inf=*/1.0, kSecond);
    ops::cuda_multi_tensor().step(rule, groups)->run(groups, options_of(rule), step);
    for (size_t g = 0; g < groups.size(); ++g) {
      for (size_t i = 0; i < groups[g].params.size(); ++i) {
        CHECK(groups[g].params[i].equal(before[g].params[i]));
        CHECK(groups[g].exp_avg[i].equal(before[g].exp_avg[i]));
        CHECK(groups[g].exp_avg_sq[i].equal(before[g].exp_avg_sq[i]));
        CHECK(groups[g].copies[i].equal(before[g].copies[i]));
      }
    }
    CHECK(step.step.item<int64_t>() == 2);
    CHECK(step.skipped.item<float>() == 1.0F);
  }
}

TEST_CASE("CUDA's lists equal the CPU's", "[cuda][null_device]") {
  const WaitAtEnd wait;
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const bool shifted : {false, true}) {
      CAPTURE(type, shifted);
      at::manual_seed(6);
      std::vector<Tensor> got, want;
      for (const int64_t size : kSizes) {
        want.push_back(at::randn({size}).to(type));
        got.push_back(placed(want.back().to(kSecond), shifted));
      }
      const auto on_cuda = ops::cuda_multi_tensor().list(got);
      const auto on_cpu = ops::cpu::make_list(want);
      CHECK(mismatch(on_host(on_cuda->norm(got)), on_cpu->norm(want), {0.0, 1e-6}) == "");
      CHECK(mismatch(on_host(on_cuda->norms(got)), on_cpu->norms(want), {0.0, 1e-6}) == "");
      const Tensor inv_scale = number(0.3, at::kFloat), found_inf = number(0, at::kFloat), ignored = at::zeros({});
      on_cuda->unscale_(got, inv_scale, found_inf);
      on_cpu->unscale_(want, on_host(inv_scale), ignored);
      for (size_t i = 0; i < got.size(); ++i) CHECK(on_host(got[i]).equal(want[i]));
      CHECK(found_inf.item<float>() == 0.0F);
      std::vector<Tensor> elsewhere;  // the same list with other tensors
      for (const Tensor& tensor : got) elsewhere.push_back(tensor * 2);
      elsewhere.back()[40002] = INFINITY;
      on_cuda->unscale_(elsewhere, inv_scale, found_inf);
      CHECK(found_inf.item<float>() == 1.0F);
      CHECK(mismatch(on_host(elsewhere.front()), want.front() * 0.6) == "");
    }
  }
}

TEST_CASE("CUDA's schedule gives its rate", "[cuda][null_device]") {
  const WaitAtEnd wait;
  const LrSchedule schedule{.lr = 0.5, .warmup_proportion = 0.1, .degree = 1.0, .max_steps = 100};
  const Tensor applied = number(39, at::kLong), rate = number(0, at::kFloat);
  ops::cuda_multi_tensor().learning_rate(schedule, applied, rate);
  CHECK(rate.item<float>() == Approx(0.5 * (1.0 - 0.4)));
}

TEST_CASE("A capture refuses tensors that are not those of the step before", "[cuda][null_device]") {
  const WaitAtEnd wait;
  const Groups groups = random_groups({});
  const std::vector<UpdateOptions> options = options_of(UpdateRule::kLamb);
  const auto step = ops::cuda_multi_tensor().step(UpdateRule::kLamb, groups);
  const StepTensors step_scalars = scalars(Tensor(), Tensor(), 0.0, kSecond);
  step->run(groups, options, step_scalars);
  const Groups others = moved(groups);
  wait_for_devices();
  const c10::cuda::CUDAStreamGuard on(c10::cuda::getStreamFromPool(false, kSecond.index()));
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  CHECK_NOTHROW(step->run(groups, options, step_scalars));
  CHECK_THROWS_WITH(step->run(others, options, step_scalars), Contains("a CUDA graph is being captured"));
  graph.capture_end();
}

}  // namespace
}  // namespace bert
