// From the third step on, an optimizer step neither allocates tensors nor reads a value from the device, so that a CUDA
// graph can hold it. Counted on the CPU, where the same code of optim/ runs.
#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "optim/amp.h"
#include "optim/data_parallel.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "tests/support/allocations.h"
#include "tests/testing.h"

namespace bert {
namespace {

using torch::Tensor;

int synchronisations = 0;

/// Counts operators for whose result the host waits.
std::unique_ptr<at::ObserverContext> count_synchronisation(const at::RecordFunction& function) {
  constexpr std::array<std::string_view, 4> kWaits{"aten::_local_scalar_dense", "aten::is_nonzero", "aten::nonzero",
                                                   "aten::equal"};
  for (const std::string_view name : kWaits) {
    if (name == function.name()) ++synchronisations;
  }
  return nullptr;
}

struct Counts {
  size_t allocations;
  int synchronisations;
};

template <class Body>
Counts counts_of(const Body& body) {
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(count_synchronisation));
  synchronisations = 0;
  const auto allocations = testing::allocations_of(body);
  at::removeCallback(handle);
  return {.allocations = allocations->sizes.size(), .synchronisations = synchronisations};
}

TEST_CASE("Allocations and synchronisations are counted", "[unit][optim]") {
  const Tensor x = at::ones({3});
  const Counts none = counts_of([&] { x.mul_(x); });
  CHECK(none.allocations == 0);
  CHECK(none.synchronisations == 0);
  const Counts some = counts_of([&] { static_cast<void>((x + x).sum().item<float>()); });
  CHECK(some.allocations == 2);
  CHECK(some.synchronisations == 1);
}

TEST_CASE("From the third on, an optimizer step allocates no tensor and does not synchronise", "[unit][optim]") {
  for (const char* type : {"lamb", "adamw", "adam", "bert_adam", "stable_adamw"}) {
    for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const bool unscale_first : {false, true}) {
        INFO(type << " " << dtype << (unscale_first ? ", unscaled first" : ""));
        std::vector<NamedParameter> parameters{{"a.weight", at::randn({40, 1000}).to(dtype).requires_grad_()},
                                               {"b.weight", at::randn({7}).to(dtype).requires_grad_()},
                                               {"a.bias", at::randn({0}).to(dtype).requires_grad_()},
                                               {"b.bias", at::randn({33}).to(dtype).requires_grad_()}};
        const auto optimizer = make_optimizer({.type = value_named<OptimizerType>(type).value()}, parameters);
        DataParallel parallel(nullptr, parameters);
        GradScaler scaler({.init_scale = 1024.0, .growth_interval = 2}, at::kCPU);
        const LrSchedule schedule = make_schedule({}, 6e-3, 100);
        const Tensor lr = at::zeros({});
        const auto step = [&] {
          parallel.expect_reduction(true);
          parallel.finish();
          ops::learning_rate_out(schedule, optimizer->applied_steps(), lr);
          if (unscale_first) scaler.unscale_(*optimizer);
          scaler.step(*optimizer, lr);
          scaler.update();
          parallel.zero_gradients();
        };
        for (int i = 0; i < 5; ++i) {
          for (const NamedParameter& parameter : parameters) parameter.tensor.grad().fill_(i == 3 ? INFINITY : 0.25);
          const Counts counts = counts_of(step);
          if (i < 2) continue;
          CHECK(counts.allocations == 0);
          CHECK(counts.synchronisations == 0);
        }
        CHECK(optimizer->applied_steps().item<int64_t>() == 4);
      }
    }
  }
}

TEST_CASE("Gradients that are set to none cost a step no memory and no wait, and give theirs back", "[unit][optim]") {
  for (const char* type : {"lamb", "adamw"}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      for (const bool unscale_first : {false, true}) {
        INFO(type << " " << dtype << (unscale_first ? ", unscaled first" : ""));
        const Tensor start = at::randn({40, 1000}).to(dtype);
        Tensor renewed = start.clone().requires_grad_(), kept = start.clone().requires_grad_();
        kept.mutable_grad() = at::zeros_like(start);
        const auto a = make_optimizer({.type = value_named<OptimizerType>(type).value()}, {{"a.weight", renewed}}),
                   b = make_optimizer({.type = value_named<OptimizerType>(type).value()}, {{"a.weight", kept}});
        GradScaler a_scaler({.init_scale = 1024.0}, at::kCPU), b_scaler({.init_scale = 1024.0}, at::kCPU);
        const Tensor lr = at::full({}, 1e-2F);
        std::vector<Tensor> others;  // earlier gradients are kept, so that a new one gets other memory
        for (int i = 0; i < 5; ++i) {
          renewed.mutable_grad() = at::full_like(start, 0.25 * i);
          kept.mutable_grad().fill_(0.25 * i);
          const Counts counts = counts_of([&] {
            for (const auto& [optimizer, scaler] : {std::pair{a.get(), &a_scaler}, {b.get(), &b_scaler}}) {
              if (unscale_first) scaler->unscale_(*optimizer);
              scaler->step(*optimizer, lr);
              scaler->update();
            }
          });
          if (i >= 2) CHECK(counts.allocations == 0);
          CHECK(counts.synchronisations == 0);
          CHECK(renewed.equal(kept));
          const Tensor gradient = renewed.grad();
          a->zero_grad();
          CHECK_FALSE(renewed.grad().defined());
          CHECK(gradient.use_count() == 1);  // nothing else keeps it
          CHECK(gradient.storage().use_count() == 1);
          others.push_back(gradient);
        }
        for (const auto& item : a->state_dict()) CHECK(item.value().equal(b->state_dict()[item.key()]));
      }
    }
  }
}

TEST_CASE("Low-precision gradients without DataParallel are converted into the same memory", "[unit][optim]") {
  std::vector<NamedParameter> parameters{{"a.weight", at::randn({40, 10}).to(at::kBFloat16).requires_grad_()}};
  const auto optimizer = make_optimizer({}, parameters);
  parameters[0].tensor.mutable_grad() = at::ones({40, 10}, at::kBFloat16);
  const Tensor lr = at::ones({});
  const auto step = [&] { optimizer->apply({.lr = lr, .inv_scale = {}, .found_inf = {}}); };
  step();
  step();
  CHECK(counts_of(step).allocations == 0);
}

}  // namespace
}  // namespace bert
