// Updates and refusals of optimizers: groups, names, gradients, ranges; moving averages and masters.
#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "optim/adam.h"
#include "optim/lamb.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "tests/support/optimizer_testing.h"

namespace bert {

using namespace testing;

TEST_CASE("Groups without parameters change nothing", "[unit][optim]") {
  std::vector<NamedParameter> alone = small_parameters(), among = small_parameters();
  Lamb optimizer({{.parameters = alone}}, {});
  Lamb with_empty({{.parameters = {}, .weight_decay = 0.01}, {.parameters = among}, {}}, {});
  set_small_gradients(alone);
  set_small_gradients(among);
  optimizer.step();
  with_empty.step();
  CHECK(same_bits(optimizer.state_dict(), with_empty.state_dict()));
  CHECK(alone[0].tensor.equal(among[0].tensor));
}

TEST_CASE("step() takes each group's learning rate and calls the closure", "[unit][optim]") {
  std::vector<NamedParameter> parameters = small_parameters();
  Lamb optimizer(group_parameters(parameters, {}), {});
  REQUIRE(optimizer.param_groups().size() == 2);
  optimizer.param_groups()[1].options().set_lr(0.0);
  const Tensor bias = parameters[1].tensor.detach().clone(), weight = parameters[0].tensor.detach().clone();
  const Tensor loss = optimizer.step([&] {
    optimizer.zero_grad();
    Tensor value = parameters[0].tensor.square().sum() + parameters[1].tensor.sum();
    value.backward();
    return value;
  });
  CHECK(loss.item<float>() == testing::Approx(5.3125));
  CHECK(parameters[1].tensor.equal(bias));
  CHECK_FALSE(parameters[0].tensor.equal(weight));
}

TEST_CASE("A parameter without a gradient is left out", "[unit][optim]") {
  std::vector<NamedParameter> parameters = small_parameters();
  const auto optimizer = make_optimizer({}, parameters);
  set_small_gradients(parameters);
  parameters[0].tensor.mutable_grad() = Tensor();
  const Tensor before = parameters[0].tensor.detach().clone();
  optimizer->apply({.lr = scalar(6e-3), .inv_scale = {}, .found_inf = {}});
  CHECK(parameters[0].tensor.equal(before));
  CHECK(optimizer->grad_norm().item<double>() == testing::Approx(std::sqrt(0.05 * 0.05 + 0.25)).epsilon(1e-6));
}

TEST_CASE("A step in which no parameter has a gradient does nothing, and says so", "[unit][optim]") {
  std::vector<NamedParameter> parameters = small_parameters();
  const auto optimizer = make_optimizer({.ema_decay = 0.9}, parameters);
  set_small_gradients(parameters, INFINITY);
  optimizer->step();
  CHECK(optimizer->found_inf().item<float>() == 1.0F);
  optimizer->zero_grad();
  const StateDict before = copy_of(optimizer->state_dict());
  optimizer->step();
  CHECK(optimizer->found_inf().item<float>() == 0.0F);
  CHECK(optimizer->grad_norm().item<float>() == 0.0F);
  CHECK(same_bits(optimizer->state_dict(), before));
}

TEST_CASE("Decay follows names, and the groups are reported", "[unit][optim]") {
  CHECK(decays("bert.encoder.layer.0.attention.self.query.weight"));
  CHECK(decays("bert.embeddings.word_embeddings.weight"));
  CHECK_FALSE(decays("bert.encoder.layer.0.attention.self.query.bias"));
  CHECK_FALSE(decays("bert.embeddings.LayerNorm.weight"));
  CHECK_FALSE(decays("cls.predictions.bias"));
  CHECK_FALSE(decays("old.gamma"));
  CHECK(decays("cls.predictions.bias", {"LayerNorm"}));
  const auto groups = group_parameters(small_parameters(), {});
  CHECK(describe(groups) ==
        "weight decay 0.01: 1 tensors, 4 elements\n  a.weight [4]\nweight decay 0: 1 tensors, 2 elements\n  a.bias "
        "[2]\n");
}

TEST_CASE("Layers share a line of the report, and layer_lr_decay gives each its rate", "[unit][optim]") {
  std::vector<NamedParameter> parameters;
  for (const char* name : {"bert.embeddings.word_embeddings.weight", "bert.encoder.layer.0.output.dense.weight",
                           "bert.encoder.layer.0.output.dense.bias", "bert.encoder.layer.1.output.dense.weight",
                           "bert.encoder.layer.1.output.dense.bias", "bert.pooler.dense.weight", "classifier.bias"}) {
    parameters.push_back({name, at::ones({2}).requires_grad_()});
  }
  CHECK(describe(group_parameters(parameters, {})) ==
        "weight decay 0.01: 4 tensors, 8 elements\n"
        "  bert.embeddings.word_embeddings.weight [2]\n"
        "  bert.encoder.layer.*.output.dense.weight [2] x 2\n"
        "  bert.pooler.dense.weight [2]\n"
        "weight decay 0: 3 tensors, 6 elements\n"
        "  bert.encoder.layer.*.output.dense.bias [2] x 2\n"
        "  classifier.bias [2]\n");

  const OptimizerConfig config{.type = OptimizerType::kAdamW, .weight_decay = 0.0, .layer_lr_decay = 0.5};
  const auto groups = group_parameters(parameters, config);
  REQUIRE(groups.size() == 7);  // rates 1, 1/2, 1/4, 1/8 with decay, 1, 1/2, 1/4 without
  CHECK(describe({groups[1]}) ==
        "weight decay 0, rate x 0.5: 1 tensors, 2 elements\n  bert.encoder.layer.*.output.dense.weight [2]\n");
  const auto optimizer = make_optimizer(config, parameters);
  for (NamedParameter& parameter : parameters) parameter.tensor.mutable_grad() = at::ones({2});
  optimizer->apply({.lr = scalar(0.1), .inv_scale = {}, .found_inf = {}});
  // The first step of Adam is the rate times the sign of the gradient.
  const double want[] = {0.0125, 0.025, 0.025, 0.05, 0.05, 0.1, 0.1};
  for (size_t i = 0; i < parameters.size(); ++i) {
    INFO(parameters[i].name);
    CHECK(mismatch(parameters[i].tensor, at::full({2}, 1.0 - want[i]), {0.0, 1e-5}) == "");
  }

  for (NamedParameter& parameter : parameters) {  // as torch::nn::TransformerEncoder names them
    if (const size_t at = parameter.name.find("layer."); at != std::string::npos) parameter.name.insert(at + 5, "s");
  }
  CHECK_THROWS_WITH(group_parameters(parameters, config),
                    testing::Contains("optimizer.layer_lr_decay is 0.5, and no parameter has \"layer.<number>.\"") &&
                        testing::Contains("the first is bert.embeddings.word_embeddings.weight. Leave it at 1, or"));
  CHECK_NOTHROW(group_parameters(parameters, {}));
}

TEST_CASE("Of several gradients that are not finite the first in the order given is named", "[unit][optim]") {
  const auto parameter = [] { return at::ones({2}).requires_grad_(); };
  const std::vector<NamedParameter> parameters{{"embeddings.LayerNorm.weight", parameter()},
                                               {"layer.0.weight", parameter()},
                                               {"layer.0.bias", parameter()},
                                               {"layer.1.weight", parameter()}};
  for (const double layer_lr_decay : {1.0, 0.5}) {  // groups: those with decay first; upper layers first
    const OptimizerConfig config{.layer_lr_decay = layer_lr_decay};
    const auto optimizer = make_optimizer(config, parameters);
    for (size_t first = 0; first < parameters.size(); ++first) {
      for (size_t i = 0; i < parameters.size(); ++i) {
        parameters[i].tensor.mutable_grad() = at::full({2}, i < first ? 1.0F : INFINITY);
      }
      CHECK(optimizer->first_non_finite_gradient() == parameters[first].name);
    }
  }
  // Written by hand, in the order of the groups.
  const Lamb lamb({{.parameters = {parameters[3], parameters[2]}}, {.parameters = {parameters[1]}}}, {});
  CHECK(lamb.first_non_finite_gradient() == "layer.1.weight");
  CHECK_THROWS_WITH(Lamb({{.parameters = parameters, .places = {0, 1}}}, {}),
                    testing::Contains("a group of 4 parameters has 2 places, expected as many or none"));
}

TEST_CASE("A module's parameters have its names, and a tied one is there once", "[unit][optim]") {
  torch::nn::Sequential net(torch::nn::Linear(3, 3), torch::nn::Tanh(), torch::nn::Linear(3, 3));
  net->register_parameter("tied", net[0]->as<torch::nn::LinearImpl>()->weight);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : named_parameters(*net)) {
    names.push_back(name);
    CHECK(tensor.is_same(net->named_parameters()[name]));
  }
  CHECK(names == std::vector<std::string>{"tied", "0.bias", "2.weight", "2.bias"});
  CHECK_NOTHROW(make_optimizer({}, named_parameters(*net)));
}

TEST_CASE("Parameters that would be updated wrongly are refused", "[unit][optim]") {
  const auto parameters = small_parameters();
  CHECK_THROWS_WITH(make_optimizer({}, {parameters[0], {"tied.weight", parameters[0].tensor}}),
                    testing::Contains("a.weight and tied.weight are one tensor"));
  CHECK_THROWS_WITH(make_optimizer({}, {parameters[0], {"view", parameters[0].tensor.detach().requires_grad_()}}),
                    testing::Contains("a.weight and view are one tensor"));
  CHECK_THROWS_WITH(Lamb({parameters[0].tensor, parameters[1].tensor, parameters[0].tensor}),
                    testing::Contains("0 and 2 are one tensor and would be updated twice. Give a tied weight once."));
  CHECK_THROWS_WITH(make_optimizer({}, {parameters[0], {"a.weight", parameters[1].tensor}}),
                    testing::Contains("two parameters are named a.weight"));
  CHECK_THROWS_WITH(make_optimizer({}, {{"x", parameters[0].tensor * 2}}), testing::Contains("only leaves"));
  CHECK_THROWS_WITH(make_optimizer({}, {}), testing::Contains("no parameters"));
  CHECK_THROWS_WITH(
      make_optimizer({}, {{"turned", at::ones({2, 3}).t().requires_grad_()}}),
      testing::Contains("turned is not contiguous: sizes [3, 2], strides [1, 3]. Make the parameter of "));
  CHECK_THROWS_WITH(make_optimizer({}, {{"narrow", at::ones({2}).to(at::kFloat8_e5m2)}}),
                    testing::Contains("narrow is Float8_e5m2, expected Float, Double, Half or BFloat16"));
}

TEST_CASE("A parameter whose dtype changed is refused by the step with what to do", "[unit][optim]") {
  for (const auto& [before, after, message] :
       {std::tuple{at::kFloat, at::kBFloat16, "0.weight is BFloat16 by now, and its state was made for Float. Convert"},
        {at::kFloat, at::kDouble, "0.weight is Double by now, and its state was made for Float. Convert"},
        {at::kHalf, at::kFloat, "0.weight is Float by now, and its state was made for Half or BFloat16. Convert"}}) {
    torch::nn::Sequential net(torch::nn::Linear(3, 2));
    net->to(before);
    const auto optimizer = make_optimizer({}, named_parameters(*net));
    net->to(after);
    for (const Tensor& parameter : net->parameters()) parameter.mutable_grad() = at::ones_like(parameter);
    CHECK_THROWS_WITH(optimizer->step(), testing::Contains(message));
  }
}

TEST_CASE("A rate out of range that was set later is refused by the step", "[unit][optim]") {
  for (const double rate : {std::numeric_limits<double>::quiet_NaN(), -1e-3, 11.0}) {
    std::vector<NamedParameter> parameters = small_parameters();
    const auto optimizer = make_optimizer({}, parameters);
    set_small_gradients(parameters);
    optimizer->param_groups()[1].options().set_lr(rate);
    CHECK_THROWS_WITH(optimizer->step(), testing::Contains("optimizer.lr is ") && testing::Contains("expected 0 to"));
    CHECK(optimizer->applied_steps().item<int64_t>() == 0);
    CHECK(parameters[0].tensor.equal(small_parameters()[0].tensor));
  }
}

TEST_CASE("Hyper-parameters out of range are refused with value and range", "[unit][optim]") {
  const auto parameters = small_parameters();
  const auto refused = [&](const OptimizerConfig& config, const char* message) {
    CHECK_THROWS_WITH(make_optimizer(config, parameters), testing::Contains(message));
  };
  refused({.lr = -1e-3}, "optimizer.lr is -0.001, expected 0 to 10");
  refused({.beta1 = 1.0}, "optimizer.beta1 is 1,");
  refused({.beta2 = -0.1}, "optimizer.beta2");
  refused({.eps = 0.0}, "optimizer.eps is 0,");
  refused({.weight_decay = -0.01}, "optimizer.weight_decay");
  refused({.type = OptimizerType::kAdamW, .use_nvlamb = true},
          "optimizer.use_nvlamb is true, expected the default (only lamb uses it) with type adamw");
  refused({.type = OptimizerType::kBertAdam, .bias_correction = false},
          "optimizer.bias_correction is false, expected the default");
  refused({.layer_lr_decay = 0.0}, "optimizer.layer_lr_decay is 0, expected 0.001 to 1");
  refused({.layer_lr_decay = 1.1}, "optimizer.layer_lr_decay is 1.1, expected 0.001 to 1");
  CHECK_THROWS_WITH(Lamb({{.parameters = parameters, .lr_scale = 0.0}}, {}), testing::Contains("lr_scale is 0"));
  const int fields = with_each_nan(OptimizerConfig(), [&](const std::string& name, const OptimizerConfig& config) {
    refused(config, ("optimizer." + name + " is nan, expected ").c_str());
  });
  CHECK(fields == 8);
}

TEST_CASE("EmaWeights are the mean of the weights at first, then a moving average, and leave out skipped steps",
          "[unit][optim]") {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    Tensor weight = at::tensor({1.0, -2.0}, at::kDouble).to(dtype).requires_grad_();
    const auto optimizer =
        make_optimizer({.type = OptimizerType::kAdamW, .lr = 0.1, .ema_decay = 0.75}, {{"a.weight", weight}});
    REQUIRE(optimizer->emas().size() == 1);
    const auto exact = [&] {  // the weights before rounding
      const StateDict state = optimizer->state_dict();
      return (dtype == at::kBFloat16 ? state["master.a.weight"] : weight).detach().to(at::kDouble, false, true);
    };
    Tensor want;
    for (int step = 1; step <= 7; ++step) {
      const bool skip = step == 3;
      weight.mutable_grad() = at::full({2}, skip ? INFINITY : 0.5 * step, weight.options().requires_grad(false));
      optimizer->apply({.lr = scalar(0.1), .inv_scale = {}, .found_inf = {}});
      if (skip) continue;
      const auto applied = static_cast<double>(optimizer->applied_steps().item<int64_t>());
      const double share = std::max(1.0 / applied, 0.25);  // 1, 1/2, 1/3, 1/4, 1/4, ...
      want = want.defined() ? want * (1.0 - share) + exact() * share : exact();
    }
    const Tensor ema = optimizer->state_dict()["ema.a.weight"];
    CHECK(mismatch(ema, want, {0.0, 1e-6}) == "");
    const Tensor before = weight.detach().clone();
    {
      const EmaWeights ema_weights(*optimizer);
      CHECK(weight.equal(ema.to(dtype)));
    }
    CHECK(weight.equal(before));
  }
  auto parameters = small_parameters();
  const auto without = make_optimizer({}, parameters);
  CHECK(without->emas().empty());
  const EmaWeights nothing(*without);
  CHECK_THROWS_WITH(make_optimizer({.ema_decay = 1.0}, parameters), testing::Contains("optimizer.ema_decay is 1,"));
}

TEST_CASE("The moving average of a weight counts the steps that left it out", "[unit][optim]") {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf}) {
    const Tensor start = at::tensor({1.0, -2.0}, at::kDouble).to(dtype);
    Tensor always = start.clone().requires_grad_(), sometimes = start.clone().requires_grad_();
    const auto optimizer =
        make_optimizer({.type = OptimizerType::kAdamW, .lr = 0.1, .max_grad_norm = 0.0, .ema_decay = 0.75},
                       {{"a.weight", always}, {"b.weight", sometimes}});
    Tensor want = start.to(at::kDouble);
    for (int step = 1, applied = 0; step <= 8; ++step) {
      const bool left_out = step % 3 == 2, skip = step == 5;
      always.mutable_grad() = at::full({2}, skip ? INFINITY : 0.5, start.options());
      sometimes.mutable_grad() = left_out ? Tensor() : at::full({2}, -0.25 * step, start.options());
      optimizer->step();
      if (skip) continue;
      const StateDict state = optimizer->state_dict();
      const Tensor exact = (dtype == at::kHalf ? state["master.b.weight"] : sometimes).detach().to(at::kDouble);
      const double share = std::max(1.0 / ++applied, 0.25);
      want = want * (1.0 - share) + exact * share;
    }
    CHECK(mismatch(optimizer->state_dict()["ema.b.weight"], want, {0.0, 1e-6}) == "");
  }
}

TEST_CASE("Low-precision weights are the rounded fp32 masters", "[unit][optim]") {
  const json g = optimizers_golden();
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    std::vector<NamedParameter> parameters = start_parameters(g, dtype), full = start_parameters(g);
    {
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < full.size(); ++i) full[i].tensor.copy_(parameters[i].tensor);
    }
    const auto low = make_optimizer({}, parameters), reference = make_optimizer({}, full);
    for (size_t step = 0; step < 5; ++step) {
      set_gradients(g, step, 1.0, full);
      for (size_t i = 0; i < full.size(); ++i)
        parameters[i].tensor.mutable_grad() = full[i].tensor.grad();  // fp32 gradients
      for (BertOptimizer* optimizer : {low.get(), reference.get()}) {
        optimizer->apply({.lr = scalar(6e-3), .inv_scale = {}, .found_inf = {}});
      }
    }
    for (size_t i = 0; i < full.size(); ++i) {
      const Tensor master = low->state_dict()["master." + full[i].name];
      CHECK(master.equal(full[i].tensor));
      CHECK(parameters[i].tensor.equal(master.to(dtype)));
    }
  }
}

}  // namespace bert
