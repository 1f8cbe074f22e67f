// Norms of updates beside the steps that the optimizers take.
#include "optim/parameter_norms.h"

#include <torch/types.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/testing.h"

using namespace bert;
using bert::testing::Approx;

namespace {

constexpr double kRate = 1e-9;  // so small that the weights before and after the step are the same for the norms

std::vector<NamedParameter> parameters() {
  const auto made = [](int64_t seed, std::vector<int64_t> shape) {
    torch::manual_seed(static_cast<uint64_t>(seed));
    return torch::randn(shape, torch::kDouble).requires_grad_();
  };
  return {{"layer.0.dense.weight", made(1, {7, 5})},
          {"layer.0.dense.bias", made(2, {7})},
          {"frozen.weight", torch::ones({3}, torch::kDouble)}};
}

void take_steps(BertOptimizer& optimizer, const std::vector<NamedParameter>& parameters, int64_t steps) {
  for (int64_t step = 0; step < steps; ++step) {
    for (const NamedParameter& parameter : parameters) {
      if (parameter.tensor.requires_grad())
        parameter.tensor.mutable_grad() = torch::randn(parameter.tensor.sizes(), torch::kDouble);
    }
    optimizer.apply({.lr = torch::tensor(kRate, torch::kFloat), .inv_scale = {}, .found_inf = {}});
  }
}

}  // namespace

TEST_CASE("Norms of updates times rate and trust ratio are the changes of the weights", "[unit][optim]") {
  for (const std::string type : {"lamb", "adamw", "adam", "bert_adam"}) {
    for (const bool use_nvlamb : {false, true}) {
      if (use_nvlamb && type != "lamb") continue;
      CAPTURE(type, use_nvlamb);
      OptimizerConfig config;
      config.type = value_named<OptimizerType>(type).value();
      config.weight_decay = 0.1;
      config.use_nvlamb = use_nvlamb;
      const std::vector<NamedParameter> all = parameters();
      const auto optimizer = make_optimizer(config, all);
      std::vector<ParameterNorms> norms = parameter_norms(all, config, optimizer->state_dict());
      REQUIRE(norms.size() == 3);
      CHECK_FALSE(norms[0].update);  // no step has been applied
      take_steps(*optimizer, all, 3);
      std::vector<torch::Tensor> before;
      for (const NamedParameter& parameter : all) before.push_back(parameter.tensor.detach().clone());
      take_steps(*optimizer, all, 1);
      norms = parameter_norms(all, config, optimizer->state_dict());
      const double rate = torch::tensor(kRate, torch::kFloat).item<double>();
      for (const size_t i : {0, 1}) {
        CAPTURE(i);
        CHECK(norms[i].name == all[i].name);
        CHECK(norms[i].weight == Approx(all[i].tensor.norm().item<double>()));
        const double change = (all[i].tensor - before[i]).norm().item<double>();
        REQUIRE(norms[i].update);
        CHECK(norms[i].trust_ratio.has_value() == (type == "lamb"));
        // The difference of two weights that differ by 1e-9 has lost half of its digits.
        CHECK(change / rate == Approx(*norms[i].update * norms[i].trust_ratio.value_or(1)).epsilon(1e-5));
      }
      if (type == "lamb") {
        CHECK(*norms[0].trust_ratio == Approx(norms[0].weight / *norms[0].update));
        CHECK((*norms[1].trust_ratio == 1) == !use_nvlamb);  // the bias has no decay
      }
      CHECK_FALSE(norms[2].update);
      CHECK(norms[2].weight == Approx(std::sqrt(3.0)));
    }
  }
}
