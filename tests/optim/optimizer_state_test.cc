// State of optimizers: saving, loading whole and in part, the change of phase, memory.
#include "optim/optimizer_state.h"

#include <torch/optim/adam.h>
#include <torch/serialize.h>

#include <sstream>

#include "optim/data_parallel.h"
#include "tests/support/allocations.h"
#include "tests/support/optimizer_testing.h"

namespace bert {
namespace {

using namespace testing;

constexpr const char* kOptimizers[] = {"lamb", "adamw", "adam", "bert_adam", "stable_adamw"};

std::vector<NamedParameter> large_parameters(at::ScalarType dtype) {
  return {{"a.weight", at::randn({100, 33}).to(dtype).requires_grad_()},
          {"b.weight", at::randn({7}).to(dtype).requires_grad_()},
          {"b.bias", at::randn({1000}).to(dtype).requires_grad_()}};
}

void step_with_ones(BertOptimizer& optimizer, std::vector<NamedParameter>& parameters, int steps = 1) {
  for (int i = 0; i < steps; ++i) {
    for (NamedParameter& parameter : parameters) {
      parameter.tensor.mutable_grad() = at::full_like(parameter.tensor, 0.5 + i).detach();
    }
    optimizer.apply({.lr = scalar(1e-2), .inv_scale = {}, .found_inf = {}});
  }
}

}  // namespace

TEST_CASE("Optimizer state survives saving and loading bit for bit", "[unit][optim]") {
  const json g = optimizers_golden();
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const char* type : {"lamb", "bert_adam"}) {
      std::vector<NamedParameter> straight = start_parameters(g, dtype), resumed = start_parameters(g, dtype);
      const OptimizerConfig config{.type = value_named<OptimizerType>(type).value(), .ema_decay = 0.9};
      const auto run = [&](BertOptimizer& optimizer, std::vector<NamedParameter>& parameters, size_t from, size_t to) {
        for (size_t step = from; step < to; ++step) {
          set_gradients(g, step, 1.0, parameters);
          optimizer.apply({.lr = scalar(6e-3), .inv_scale = {}, .found_inf = {}});
        }
      };
      const auto whole = make_optimizer(config, straight);
      run(*whole, straight, 0, 20);

      const auto first = make_optimizer(config, resumed);
      run(*first, resumed, 0, 10);
      std::stringstream archive;
      torch::save(*first, archive);
      for (NamedParameter& parameter : resumed) parameter.tensor = parameter.tensor.detach().clone().requires_grad_();
      const auto second = make_optimizer(config, resumed);
      torch::load(*second, archive);
      run(*second, resumed, 10, 20);
      CHECK(same_bits(whole->state_dict(), second->state_dict()));
      for (size_t i = 0; i < straight.size(); ++i) CHECK(straight[i].tensor.equal(resumed[i].tensor));
    }
  }
}

TEST_CASE("An archive of something else is refused", "[unit][optim]") {
  const std::vector<NamedParameter> parameters = small_parameters();
  const auto optimizer = make_optimizer({}, parameters);
  const StateDict before = copy_of(optimizer->state_dict());
  std::stringstream adam, tensor;
  torch::save(torch::optim::Adam({parameters[0].tensor}), adam);
  torch::save(parameters[0].tensor, tensor);
  for (std::stringstream* archive : {&adam, &tensor}) {
    CHECK_THROWS_WITH(torch::load(*optimizer, *archive),
                      Contains("optimizer: the archive has no dictionary \"state\""));
  }
  CHECK(same_bits(optimizer->state_dict(), before));
}

TEST_CASE("A state that does not fit is refused with the list, and nothing is loaded", "[unit][optim]") {
  std::vector<NamedParameter> parameters = small_parameters();
  const auto optimizer = make_optimizer({}, parameters);
  const StateDict before = copy_of(optimizer->state_dict());
  StateDict wrong;
  wrong.insert("step", at::scalar_tensor(7, at::kLong));
  wrong.insert("exp_avg.a.weight", at::ones({5}));
  wrong.insert("exp_avg_sq.a.weight", at::ones({4}));
  wrong.insert("exp_avg.a.bias", at::ones({2}));
  wrong.insert("exp_avg.b.bias", at::ones({2}));
  CHECK_THROWS_WITH(optimizer->load_state_dict(wrong),
                    testing::Contains("reshaped: exp_avg.a.weight: expected [4], got [5]") &&
                        testing::Contains("missing: exp_avg_sq.a.bias") && testing::Contains("extra: exp_avg.b.bias"));
  CHECK(same_bits(optimizer->state_dict(), before));
}

TEST_CASE("A state of another dtype or with a negative step is refused, and fitting converts it", "[unit][optim]") {
  std::vector<NamedParameter> parameters = small_parameters();
  const auto optimizer = make_optimizer({}, parameters);
  const StateDict before = copy_of(optimizer->state_dict());
  StateDict wrong = copy_of(before);
  wrong["exp_avg.a.weight"] = at::ones({4}, at::kHalf);
  wrong["step"] = at::scalar_tensor(-2, at::kLong);
  CHECK_THROWS_WITH(
      optimizer->load_state_dict(wrong),
      Contains("negative: step: -2") && Contains("of another dtype: exp_avg.a.weight: expected Float, got Half"));
  CHECK(same_bits(optimizer->state_dict(), before));
  wrong["step"] = at::scalar_tensor(2.0, at::kFloat);
  CHECK_THROWS_WITH(optimizer->load_state_dict(wrong), Contains("of another dtype: step: expected Long, got Float"));
  optimizer->load_state_dict(fit_state({}, parameters, wrong).state);
  CHECK(optimizer->applied_steps().item<int64_t>() == 2);
  CHECK(optimizer->state_dict()["exp_avg.a.weight"].equal(at::ones({4})));
}

TEST_CASE("Phase 1 to 2 keeps the moments and starts the step again", "[unit][optim]") {
  std::vector<NamedParameter> parameters = small_parameters();
  const auto optimizer = make_optimizer({}, parameters);
  set_small_gradients(parameters);
  optimizer->apply({.lr = scalar(6e-3), .inv_scale = {}, .found_inf = {}});
  const StateDict before = copy_of(optimizer->state_dict());
  optimizer->reset_step();
  CHECK(optimizer->applied_steps().item<int64_t>() == 0);
  CHECK(optimizer->state_dict()["exp_avg.a.weight"].equal(before["exp_avg.a.weight"]));
  CHECK(optimizer->state_dict()["exp_avg_sq.a.bias"].equal(before["exp_avg_sq.a.bias"]));
}

TEST_CASE("A state in another order is loaded by its names", "[unit][optim]") {
  std::vector<NamedParameter> parameters = small_parameters();
  const auto optimizer = make_optimizer({}, parameters);
  set_small_gradients(parameters);
  optimizer->apply({.lr = scalar(6e-3), .inv_scale = {}, .found_inf = {}});
  const StateDict saved = copy_of(optimizer->state_dict());
  StateDict reversed;
  for (size_t i = saved.size(); i-- > 0;) reversed.insert(saved[i].key(), saved[i].value());
  std::vector<NamedParameter> others = small_parameters();
  std::swap(others[0], others[1]);
  const auto other = make_optimizer({}, others);
  other->load_state_dict(reversed);
  CHECK(same_bits(other->state_dict(), saved));
}

TEST_CASE("A state is loaded in part when asked, with a report", "[unit][optim]") {
  std::vector<NamedParameter> parameters = small_parameters();
  StateDict given;
  given.insert("step", at::scalar_tensor(7, at::kLong));
  given.insert("exp_avg.a.weight", at::ones({5}));
  given.insert("exp_avg_sq.a.weight", at::ones({4}));
  given.insert("exp_avg.a.bias", at::ones({2}));
  given.insert("exp_avg_sq.a.bias", at::full({2}, 2.0F));
  given.insert("exp_avg.b.bias", at::ones({2}));
  const OptimizerConfig config{.ema_decay = 0.9};
  const FittedState fitted = fit_state(config, parameters, given);
  CHECK_FALSE(fitted.complete());
  CHECK(fitted.loaded == std::vector<std::string>{"step", "exp_avg.a.bias", "exp_avg_sq.a.bias"});
  CHECK(fitted.missing == std::vector<std::string>{"ema.a.weight", "ema.a.bias"});
  CHECK(fitted.reshaped == std::vector<std::string>{"exp_avg.a.weight: expected [4], got [5]"});
  CHECK(fitted.unexpected == std::vector<std::string>{"exp_avg.b.bias"});
  CHECK(fitted.report() ==
        "3 entries taken\n  missing: ema.a.weight\n  missing: ema.a.bias\n  reshaped: exp_avg.a.weight: expected [4], "
        "got [5]\n  unexpected: exp_avg.b.bias");

  const auto optimizer = make_optimizer(config, parameters);
  optimizer->load_state_dict(fitted.state);
  const StateDict state = optimizer->state_dict();
  CHECK(optimizer->applied_steps().item<int64_t>() == 7);
  CHECK(state["exp_avg.a.bias"].equal(given["exp_avg.a.bias"]));
  CHECK(state["exp_avg_sq.a.bias"].equal(given["exp_avg_sq.a.bias"]));
  for (const char* moment : {"exp_avg.a.weight", "exp_avg_sq.a.weight"}) {  // both or none
    CHECK(state[moment].equal(at::zeros({4})));
  }
  CHECK(state["ema.a.weight"].equal(parameters[0].tensor));
  CHECK(fit_state(config, parameters, state).complete());
}

TEST_CASE("Phase 2 begins with phase 1's weights and moments, at step 0, in any precision", "[unit][optim]") {
  for (const char* type : kOptimizers) {
    for (const auto from : {at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const auto to : {at::kFloat, at::kBFloat16, at::kHalf}) {
        CAPTURE(type, from, to);
        at::manual_seed(3);
        auto before = large_parameters(from);
        const auto first = make_optimizer({.type = value_named<OptimizerType>(type).value(), .ema_decay = 0.9}, before);
        step_with_ones(*first, before, 3);
        EarlierRun earlier{.weights = StateDict(), .optimizer_state = copy_of(first->state_dict())};
        for (const auto& [name, tensor] : before) earlier.weights.insert(name, tensor.detach().clone());
        const StateDict& state = earlier.optimizer_state;
        const auto exact = [&](const std::string& name) {
          return from == at::kFloat ? earlier.weights[name] : state["master." + name];
        };

        auto after = large_parameters(to);  // with other values
        const OptimizerConfig config{.type = value_named<OptimizerType>(type).value(),
                                     .ema_decay = to == at::kFloat ? 0.9 : 0.0};
        const auto second = make_optimizer(config, after);
        step_with_ones(*second, after);
        const NextPhase next = next_phase(config, after, earlier);
        second->load_state_dict(next.optimizer_state);
        CHECK(second->applied_steps().item<int64_t>() == 0);
        const StateDict loaded = second->state_dict();
        for (const auto& [name, tensor] : after) {
          CHECK(next.weights[name].to(to).equal(exact(name).to(to)));
          if (to != at::kFloat) {
            CHECK(loaded["master." + name].equal(exact(name)));
            CHECK(tensor.equal(exact(name).to(to)));
          } else {
            CHECK(loaded["ema." + name].equal(exact(name)));
          }
          for (const std::string moment : {"exp_avg.", "exp_avg_sq."}) {
            CHECK(loaded[moment + name].equal(state[moment + name]));
            CHECK(loaded[moment + name].count_nonzero().item<int64_t>() > 0);
          }
        }

        earlier.keep_moments = false;
        second->load_state_dict(next_phase(config, after, earlier).optimizer_state);
        CHECK(second->state_dict()["exp_avg.a.weight"].count_nonzero().item<int64_t>() == 0);
        if (to != at::kFloat) CHECK(second->state_dict()["master.a.weight"].equal(exact("a.weight")));
      }
    }
  }
}

TEST_CASE("Phase 2 refuses moments of another model with the list", "[unit][optim]") {
  std::vector<NamedParameter> parameters = small_parameters();
  const auto optimizer = make_optimizer({}, parameters);
  EarlierRun earlier{.weights = StateDict(), .optimizer_state = copy_of(optimizer->state_dict())};
  for (const auto& [name, tensor] : parameters) earlier.weights.insert(name, tensor.detach());
  CHECK_NOTHROW(next_phase({}, parameters, earlier));
  earlier.optimizer_state["exp_avg.a.weight"] = at::ones({5});
  earlier.optimizer_state.insert("exp_avg.pooler", at::ones({2}));
  CHECK_THROWS_WITH(next_phase({}, parameters, earlier), Contains("start from the weights alone") &&
                                                             Contains("exp_avg.a.weight: expected [4], got [5]") &&
                                                             Contains("unexpected: exp_avg.pooler"));
  earlier.optimizer_state = StateDict();
  CHECK_THROWS_WITH(next_phase({}, parameters, earlier), Contains("missing: exp_avg_sq.a.bias"));
  earlier.keep_moments = false;
  CHECK_NOTHROW(next_phase({}, parameters, earlier));
}

TEST_CASE("Optimizer and gradients take the memory that the formulas say", "[unit][optim]") {
  constexpr int64_t kScalars = 16, kAllocator = 64;  // bytes; a gradient's place is a multiple of kAllocator
  for (const char* type : kOptimizers) {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
      for (const double ema_decay : {0.0, 0.9}) {
        CAPTURE(type, dtype, ema_decay);
        auto parameters = large_parameters(dtype);
        const OptimizerConfig config{.type = value_named<OptimizerType>(type).value(), .ema_decay = ema_decay};
        const TrainingBytes bytes = bytes_per_parameter(config, dtype);
        int64_t elements = 0, gradients = 0;
        for (const NamedParameter& parameter : parameters) {
          elements += parameter.tensor.numel();
          gradients += (parameter.tensor.numel() * bytes.gradient + kAllocator - 1) / kAllocator * kAllocator;
        }
        CHECK(static_cast<int64_t>(parameters[0].tensor.element_size()) == bytes.weight);
        std::unique_ptr<BertOptimizer> optimizer;
        std::optional<DataParallel> parallel;
        const auto made = allocations_of([&] { optimizer = make_optimizer(config, parameters); });
        CHECK(made->live == elements * bytes.state() + kScalars);
        const auto buffers = allocations_of([&] { parallel.emplace(nullptr, parameters); });
        CHECK(buffers->live == gradients);
        if (dtype == at::kDouble) continue;
        const Tensor lr = scalar(1e-3);
        const auto steps = allocations_of([&] {
          for (int i = 0; i < 3; ++i) optimizer->apply({.lr = lr, .inv_scale = {}, .found_inf = {}});
        });
        CHECK(steps->live <= 64);  // the gradients' norm
      }
    }
  }
  CHECK(bytes_per_parameter({}, at::kFloat).state() == 8);
  CHECK(bytes_per_parameter({}, at::kBFloat16).state() == 12);
  CHECK(bytes_per_parameter({.ema_decay = 0.99}, at::kHalf).state() == 16);
  CHECK(bytes_per_parameter({}, at::kDouble).state() == 16);
}

}  // namespace bert
