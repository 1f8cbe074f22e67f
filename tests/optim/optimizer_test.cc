// Lamb, AdamW, Adam and BertAdam compared with float64 goldens; their properties; groups.
#include "optim/optimizer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "app/config/pretrain_config.h"
#include "optim/adam.h"
#include "optim/lamb.h"
#include "optim/lr_schedule.h"
#include "tests/places.h"
#include "tests/support/optimizer_testing.h"

namespace bert {
namespace {

using namespace testing;

constexpr Tolerance kClose{0.0, 1e-6};

OptimizerConfig config_of(const json& run) {
  OptimizerConfig config;
  const std::string name = run["name"];
  config.type = value_named<OptimizerType>(name.substr(0, name.find(' '))).value();
  const json& options = run["options"];
  config.lr = options.value("lr", config.lr);
  config.eps = options.value("eps", config.eps);
  config.max_grad_norm = options.value("max_grad_norm", config.max_grad_norm);
  config.bias_correction = options.value("bias_correction", true);
  config.use_nvlamb = options.value("use_nvlamb", false);
  return config;
}

/// The largest |got - want| / |want| over the tensors and checkpoints of a run, with norms by tensor.
double worst_error(const json& g, const json& run, const OptimizerConfig& config, double scale,
                   at::ScalarType dtype = at::kFloat) {
  std::vector<NamedParameter> parameters = start_parameters(g, dtype);
  const auto optimizer = make_optimizer(config, parameters);
  double worst = 0.0;
  for (size_t step = 0; step < g["gradients_times_1024"].size(); ++step) {
    set_gradients(g, step, scale, parameters);
    optimizer->apply(
        {.lr = at::scalar_tensor(config.lr, at::kDouble), .inv_scale = scalar(1.0 / scale), .found_inf = scalar(0.0)});
    const double want_norm = run["grad_norm"][step];
    CHECK(optimizer->grad_norm().item<double>() == testing::Approx(want_norm).epsilon(1e-6).margin(1e-12));
    const std::string key = std::to_string(step + 1);
    if (!run["params"].contains(key)) continue;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Tensor want = tensor_of(run["params"][key][i], g["tensors"][i]["shape"], at::kDouble);
      const Tensor difference = parameters[i].tensor.detach().to(at::kDouble) - want;
      worst = std::max(worst, (difference.norm() / want.norm()).item<double>());
    }
  }
  return worst;
}

constexpr double kGoldenTolerance = 1e-6;

}  // namespace

TEST_CASE("Lamb, AdamW, Adam and BertAdam equal the float64 goldens over 100 steps", "[optim][golden]") {
  const json g = optimizers_golden();
  for (const json& run : g["runs"]) {
    INFO(run["name"]);
    const OptimizerConfig config = config_of(run);
    CHECK(worst_error(g, run, config, 1.0) <= kGoldenTolerance);
    CHECK(worst_error(g, run, config, 1048576.0) <= kGoldenTolerance);  // 2^20, the recipe's loss scale
    CHECK(worst_error(g, run, config, 1.0, at::kDouble) <= 1e-12);
  }
}

TEST_CASE("The optimizer goldens notice a changed constant", "[optim][golden]") {
  const json g = optimizers_golden();
  const auto run_of = [&](const std::string& name) -> const json& {
    for (const json& run : g["runs"]) {
      if (run["name"] == name) return run;
    }
    throw std::runtime_error("no run " + name);
  };
  const json& lamb = run_of("lamb");
  const auto fails = [&](const json& run, auto&& change) {
    OptimizerConfig config = config_of(run);
    change(config);
    return worst_error(g, run, config, 1.0) > kGoldenTolerance;
  };
  CHECK(fails(lamb, [](OptimizerConfig& c) { c.eps = 2e-6; }));
  CHECK(fails(lamb, [](OptimizerConfig& c) { c.use_nvlamb = true; }));
  CHECK(fails(lamb, [](OptimizerConfig& c) { c.weight_decay = 0.0101; }));
  CHECK(fails(lamb, [](OptimizerConfig& c) { c.max_grad_norm = 1.01; }));
  CHECK(fails(run_of("adamw"), [](OptimizerConfig& c) { c.beta2 = 0.9991; }));
  CHECK(fails(run_of("adamw"), [](OptimizerConfig& c) { c.bias_correction = false; }));
  CHECK(fails(run_of("adam"), [](OptimizerConfig& c) { c.type = OptimizerType::kAdamW; }));
  CHECK(fails(run_of("adam"), [](OptimizerConfig& c) { c.no_decay.clear(); }));
  CHECK(fails(run_of("bert_adam"), [](OptimizerConfig& c) { c.type = OptimizerType::kAdamW; }));
  CHECK(fails(run_of("bert_adam"), [](OptimizerConfig& c) {  // clips by the norm of all gradients
    c.type = OptimizerType::kAdamW;
    c.bias_correction = false;
  }));
}

TEST_CASE("configs/pretrain-google.json is Google's AdamWeightDecayOptimizer and schedule", "[optim][golden]") {
  const json g = optimizers_golden();
  const json& google = g["google"];
  const auto steps = google["num_train_steps"].get<int64_t>();
  // The largest error of a tensor after 20 steps, in relation to what the steps changed.
  const auto worst = [&](auto&& change) {
    PretrainConfig config = load_pretrain_config(BERT_SOURCE_DIR "/configs/pretrain-google.json");
    CHECK(config.optimizer.lr == google["lr"]);
    config.schedule.warmup_proportion = google["num_warmup_steps"].get<double>() / static_cast<double>(steps);
    change(config);
    std::vector<NamedParameter> parameters = start_parameters(g, at::kDouble);
    const auto optimizer = make_optimizer(config.optimizer, parameters);
    const LrSchedule schedule = make_schedule(config.schedule, config.optimizer.lr, steps);
    for (size_t step = 0; step < google["rates"].size(); ++step) {
      set_gradients(g, step, 1.0, parameters);
      optimizer->apply({.lr = learning_rate(schedule, optimizer->applied_steps()), .inv_scale = {}, .found_inf = {}});
    }
    double error = 0.0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const json& shape = g["tensors"][i]["shape"];
      const Tensor start = tensor_of(g["start"][i], shape, at::kDouble);
      const Tensor want = tensor_of(google["params"][i], shape, at::kDouble);
      const Tensor difference = parameters[i].tensor.detach() - want;
      error = std::max(error, (difference.norm() / (want - start).norm()).item<double>());
    }
    return error;
  };
  CHECK(worst([](PretrainConfig&) {}) <= 1e-6);
  CHECK(worst([](PretrainConfig& c) {
          c.optimizer.type = OptimizerType::kBertAdam;
          c.optimizer.bias_correction = true;  // the default, which it ignores
        }) > 1e-3);
  CHECK(worst([](PretrainConfig& c) { c.optimizer.bias_correction = true; }) > 1e-3);
  CHECK(worst([](PretrainConfig& c) { c.optimizer.no_decay = {"LayerNorm"}; }) > 1e-6);
  CHECK(worst([](PretrainConfig& c) {
          c.schedule = {ScheduleType::kTensorflow, c.schedule.warmup_proportion};
        }) > 1e-3);
}

TEST_CASE("Lamb's first three steps equal the published numbers", "[unit][optim]") {
  // NVIDIA's recipe with decay 0.01 on the first tensor, computed in double: parameters after the step, norm before
  // clipping.
  struct Step {
    std::vector<float> weight_grad, bias_grad, weight, bias;
    double grad_norm;
  };
  const std::vector<Step> steps{{.weight_grad = {0.1F, 0.2F, -0.3F, 0.4F},
                                 .bias_grad = {0.05F, -0.5F},
                                 .weight = {0.992994769F, -2.006797188F, 0.506901239F, 0.243046736F},
                                 .bias = {0.094000120F, -0.094000012F},
                                 .grad_norm = 0.743303437},
                                {.weight_grad = {-2.0F, 1.0F, 0.5F, -1.0F},
                                 .bias_grad = {3.0F, 0.25F},
                                 .weight = {0.999829623F, -2.018103122F, 0.510592971F, 0.241126758F},
                                 .bias = {0.089283248F, -0.090578299F},
                                 .grad_norm = 3.913118961},
                                {.weight_grad = {0.0F, 1e-3F, -1e-3F, 2e-3F},
                                 .bias_grad = {0.0F, 0.0F},
                                 .weight = {1.006689095F, -2.029466945F, 0.514328542F, 0.239141421F},
                                 .bias = {0.085637094F, -0.087933306F},
                                 .grad_norm = 0.002449490}};
  for (const bool use_nvlamb : {false, true}) {
    std::vector<NamedParameter> parameters = small_parameters();
    const auto optimizer = make_optimizer({.use_nvlamb = use_nvlamb}, parameters);
    for (const Step& step : steps) {
      parameters[0].tensor.mutable_grad() = at::tensor(step.weight_grad);
      parameters[1].tensor.mutable_grad() = at::tensor(step.bias_grad);
      optimizer->apply({.lr = scalar(6e-3), .inv_scale = {}, .found_inf = {}});
      CHECK(mismatch(parameters[0].tensor, at::tensor(step.weight), kClose) == "");
      if (!use_nvlamb) CHECK(mismatch(parameters[1].tensor, at::tensor(step.bias), kClose) == "");
      CHECK(optimizer->grad_norm().item<double>() == testing::Approx(step.grad_norm).epsilon(1e-6));
    }
    const Tensor with_ratio = at::tensor({0.098038612F, -0.098412413F});  // the bias, whose decay is 0
    CHECK((mismatch(parameters[1].tensor, with_ratio, kClose) == "") == use_nvlamb);
  }
}

namespace {

/// LAMB operation by operation as the reference's kernels compute it, or AdamW; decay 0.01. In fp64 this is the
/// definition, in fp32 it has the reference's own rounding.
class Definition {
 public:
  Definition(std::string type, const std::vector<NamedParameter>& parameters, at::ScalarType dtype)
      : type_(std::move(type)) {
    for (const auto& [name, tensor] : parameters) {
      params.push_back(tensor.detach().to(dtype, /*non_blocking=*/false, /*copy=*/true).requires_grad_());
      exp_avg.push_back(at::zeros_like(params.back()));
      exp_avg_sq.push_back(at::zeros_like(params.back()));
      decay_.push_back(decays(name) ? 0.01 : 0.0);
    }
  }

  /// One step. The gradients are `scale` times those of the loss. kept: the dtype that the update is rounded to.
  void step(const std::vector<Tensor>& grads, double lr, double scale = 1.0, at::ScalarType kept = at::kDouble) {
    const at::NoGradGuard no_grad;
    ++steps_;
    std::vector<Tensor> norms;
    for (const Tensor& grad : grads) norms.push_back(grad.norm());
    const auto norm = at::stack(norms).norm().item<double>();
    const double clip =
        type_ == "lamb" ? std::max(1.0, norm / scale) : 1.0 / std::min(1.0, 1.0 / (norm / scale + 1e-6));
    const bool single = params.front().scalar_type() == at::kFloat;
    const double beta1 = rounded(0.9, single), beta2 = rounded(0.999, single);
    const double correction1 = rounded(1.0 - rounded(std::pow(beta1, steps_), single), single),
                 correction2 = rounded(1.0 - rounded(std::pow(beta2, steps_), single), single);
    for (size_t i = 0; i < params.size(); ++i) {
      const Tensor g = grads[i] * rounded(1.0 / scale, single) / rounded(clip, single);
      exp_avg[i].copy_(exp_avg[i] * beta1 + g * rounded(1.0 - beta1, single));
      exp_avg_sq[i].copy_(exp_avg_sq[i] * beta2 + g * g * rounded(1.0 - beta2, single));
      Tensor update = exp_avg[i] / correction1 / ((exp_avg_sq[i] / correction2).sqrt() + 1e-6) + params[i] * decay_[i];
      if (kept == at::kHalf) update = update.to(kept).to(params[i].scalar_type());
      const bool has_ratio = type_ == "lamb" && decay_[i] != 0.0;
      params[i].sub_(update *
                     (has_ratio ? params[i].norm() * lr / update.norm() : at::full_like(params[i].norm(), lr)));
    }
  }

  std::vector<Tensor> params, exp_avg, exp_avg_sq;

 private:
  static double rounded(double x, bool single) { return single ? static_cast<double>(static_cast<float>(x)) : x; }

  std::string type_;
  std::vector<double> decay_;
  int steps_ = 0;
};

double distance(const Tensor& got, const Tensor& want) {
  return ((got.to(at::kDouble) - want.to(at::kDouble)).norm() / want.to(at::kDouble).norm()).item<double>();
}

}  // namespace

TEST_CASE("Lamb stays beside the reference's order of operations in fp32", "[unit][optim]") {
  // Note [LAMB's order of operations]
  constexpr double kScale = 3000.0, kRate = 6e-3;
  at::manual_seed(7);
  const std::vector<NamedParameter> parameters{{"a.weight", (at::randn({257, 65}) * 0.02).requires_grad_()},
                                               {"b.weight", at::randn({64, 33}).requires_grad_()},
                                               {"b.bias", (at::randn({129}) * 0.1).requires_grad_()}};
  const auto optimizer = make_optimizer({}, parameters);
  Definition reference("lamb", parameters, at::kFloat), halved("lamb", parameters, at::kFloat);
  const Tensor start = parameters[0].tensor.detach().clone();
  for (int step = 1; step <= 100; ++step) {
    std::vector<Tensor> grads;
    for (const auto& [name, tensor] : parameters) {
      grads.push_back(at::randn_like(tensor) * (step % 3 == 0 ? 1e-3 : 1.0) * kScale);  // clipped or not
      tensor.mutable_grad() = grads.back();
    }
    optimizer->apply({.lr = scalar(kRate), .inv_scale = scalar(1.0 / kScale), .found_inf = {}});
    reference.step(grads, kRate, kScale);
    halved.step(grads, kRate, kScale, at::kHalf);
    if (step != 1 && step != 10 && step != 100) continue;
    CAPTURE(step);
    const StateDict state = optimizer->state_dict();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const std::string& name = parameters[i].name;
      CAPTURE(name);
      CHECK(distance(parameters[i].tensor, reference.params[i]) <= 1e-6);
      CHECK(distance(state["exp_avg." + name], reference.exp_avg[i]) <= 1e-6);
      CHECK(distance(state["exp_avg_sq." + name], reference.exp_avg_sq[i]) <= 2e-5);
    }
    const Tensor way = reference.params[0] - start;
    CHECK(distance(parameters[0].tensor - start, way) <= 2e-6);
    CHECK(distance(halved.params[0] - start, way) > 2e-5);  // the twin: with another rounding the change differs
  }
}

TEST_CASE("A weight used twice gets the gradient of both uses, and one update", "[unit][optim]") {
  // An embedding whose table is also the decoder of a classifier, as in BERT.
  const Tensor ids = at::tensor({3, 1, 4, 1, 5, 9, 2, 6}, at::kLong),
               labels = at::tensor({1, 4, 1, 5, 9, 2, 6, 5}, at::kLong);
  const auto loss = [&](const Tensor& table, const Tensor& dense, bool both) {
    const Tensor hidden = at::tanh(at::matmul(at::embedding(both ? table : table.detach(), ids), dense));
    return at::cross_entropy_loss(at::matmul(hidden, table.t()), labels);
  };
  for (const char* type : {"lamb", "adamw"}) {
    at::manual_seed(3);
    const std::vector<NamedParameter> parameters{{"tied.weight", (at::randn({11, 6}) * 0.5).requires_grad_()},
                                                 {"dense.weight", (at::randn({6, 6}) * 0.5).requires_grad_()}};
    const auto optimizer = make_optimizer({.type = value_named<OptimizerType>(type).value(), .lr = 1e-2}, parameters);
    Definition definition(type, parameters, at::kDouble), one_use(type, parameters, at::kDouble);
    for (int step = 0; step < 8; ++step) {
      optimizer->zero_grad();
      loss(parameters[0].tensor, parameters[1].tensor, true).backward();
      optimizer->step();
      for (Definition* twin : {&definition, &one_use}) {
        const auto grads = torch::autograd::grad({loss(twin->params[0], twin->params[1], twin == &definition)},
                                                 {twin->params[0], twin->params[1]});
        twin->step(grads, 1e-2);
      }
    }
    CAPTURE(type);
    for (size_t i = 0; i < parameters.size(); ++i) {
      CHECK(distance(parameters[i].tensor, definition.params[i]) <= 1e-6);
      CHECK(distance(parameters[i].tensor, one_use.params[i]) > 1e-3);
    }
  }
}

TEST_CASE("A gradient that is not finite changes no bit", "[unit][optim]") {
  for (const char* type : {"lamb", "adamw", "adam", "bert_adam"}) {
    for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      std::vector<NamedParameter> parameters = small_parameters();
      const auto optimizer = make_optimizer({.type = value_named<OptimizerType>(type).value()}, parameters);
      set_small_gradients(parameters);
      optimizer->apply({.lr = scalar(6e-3), .inv_scale = {}, .found_inf = {}});
      const StateDict before = copy_of(optimizer->state_dict());
      const Tensor weight = parameters[0].tensor.detach().clone();

      parameters[1].tensor.mutable_grad()[1].fill_(bad);
      optimizer->apply({.lr = scalar(6e-3), .inv_scale = {}, .found_inf = {}});
      CHECK(optimizer->found_inf().item<float>() == 1.0F);
      CHECK(optimizer->first_non_finite_gradient() == "a.bias");
      CHECK(optimizer->applied_steps().item<int64_t>() == 1);
      CHECK(same_bits(optimizer->state_dict(), before));
      CHECK(parameters[0].tensor.equal(weight));

      set_small_gradients(parameters);
      optimizer->apply({.lr = scalar(6e-3), .inv_scale = {}, .found_inf = scalar(1.0)});  // an overflow on another rank
      CHECK(same_bits(optimizer->state_dict(), before));
      CHECK(parameters[0].tensor.equal(weight));

      optimizer->apply({.lr = scalar(6e-3), .inv_scale = {}, .found_inf = scalar(0.0)});
      CHECK(optimizer->found_inf().item<float>() == 0.0F);
      CHECK(optimizer->applied_steps().item<int64_t>() == 2);
      CHECK(optimizer->first_non_finite_gradient() == std::nullopt);
    }
  }
}

TEST_CASE("Above max_grad_norm Lamb does not depend on the gradient's size", "[unit][optim]") {
  std::vector<Tensor> results;
  for (const float factor : {8.0F, 512.0F}) {
    std::vector<NamedParameter> parameters = small_parameters();
    const auto optimizer = make_optimizer({}, parameters);
    set_small_gradients(parameters, factor);
    optimizer->apply({.lr = scalar(6e-3), .inv_scale = {}, .found_inf = {}});
    results.push_back(parameters[0].tensor.detach());
  }
  CHECK(mismatch(results[0], results[1], kClose) == "");
}

TEST_CASE("Lamb on tensors of zeros", "[unit][optim]") {
  std::vector<NamedParameter> parameters{{"zero.weight", at::zeros({2}).requires_grad_()},
                                         {"still.weight", at::ones({2}).requires_grad_()}};
  const auto optimizer = make_optimizer({.weight_decay = 0.01}, parameters);
  parameters[0].tensor.mutable_grad() = at::tensor({0.1F, 0.2F});
  parameters[1].tensor.mutable_grad() = at::zeros({2});
  optimizer->apply({.lr = scalar(6e-3), .inv_scale = {}, .found_inf = {}});
  // |p| = 0: ratio lr, and the first Adam step is the sign of the gradient.
  const Tolerance beside_eps{0.0, 1e-4};  // wider: taking the sign leaves out eps, 1e-6 beside |g| = 0.1
  CHECK(mismatch(parameters[0].tensor, at::tensor({-6e-3F, -6e-3F}), beside_eps) == "");
  // Decay without a gradient: u = 0.01 p, so lr |p| / |u| u = lr p.
  CHECK(mismatch(parameters[1].tensor, at::tensor({0.994F, 0.994F}), kClose) == "");
}

/// The relative difference after 20 steps of two optimizers from one start with the same gradients.
template <class Ours, class Theirs, class TheirOptions>
double distance_from_torch(const OptimizerConfig& config, const TheirOptions& options) {
  at::manual_seed(5);
  const Tensor start = at::randn({37, 19});
  Tensor ours = start.clone().requires_grad_(), theirs = start.clone().requires_grad_();
  Ours optimizer({ours}, config);
  Theirs reference({theirs}, options);
  for (int step = 0; step < 20; ++step) {
    ours.mutable_grad() = at::randn({37, 19});
    theirs.mutable_grad() = ours.grad().clone();
    optimizer.step();
    reference.step();
  }
  return ((ours - theirs).norm() / theirs.norm()).item<double>();
}

TEST_CASE("AdamW equals torch::optim::AdamW", "[unit][optim]") {
  const double distance = distance_from_torch<AdamW, torch::optim::AdamW>(
      {.type = OptimizerType::kAdamW, .lr = 1e-3, .eps = 1e-8, .weight_decay = 0.01, .max_grad_norm = 0.0},
      torch::optim::AdamWOptions(1e-3).eps(1e-8).weight_decay(0.01));
  CHECK(distance <= 1e-6);
}

TEST_CASE("Adam equals torch::optim::Adam", "[unit][optim]") {
  const double distance = distance_from_torch<Adam, torch::optim::Adam>(
      {.lr = 1e-3, .eps = 1e-8, .weight_decay = 0.01, .max_grad_norm = 0.0},
      torch::optim::AdamOptions(1e-3).eps(1e-8).weight_decay(0.01));
  CHECK(distance <= 1e-6);
}

TEST_CASE("BertAdam clips each tensor by its own norm", "[unit][optim]") {
  // First step: m = 0.1 g, v = 0.001 g^2, so m / sqrt(v) = sqrt(10) sign(g); the moments show the clipping.
  std::vector<NamedParameter> parameters{{"a.weight", at::zeros({2}).requires_grad_()},
                                         {"b.weight", at::zeros({2}).requires_grad_()}};
  const auto optimizer = make_optimizer({.type = OptimizerType::kBertAdam, .weight_decay = 0.0}, parameters);
  parameters[0].tensor.mutable_grad() = at::tensor({6.0F, 8.0F});  // norm 10, clipped to 1
  parameters[1].tensor.mutable_grad() = at::tensor({0.3F, 0.4F});  // norm 0.5, not clipped
  optimizer->apply({.lr = scalar(0.01), .inv_scale = {}, .found_inf = {}});
  const StateDict state = optimizer->state_dict();
  CHECK(mismatch(state["exp_avg.a.weight"], at::tensor({0.06F, 0.08F}), kClose) == "");
  CHECK(mismatch(state["exp_avg.b.weight"], at::tensor({0.03F, 0.04F}), kClose) == "");
  const Tolerance beside_eps{0.0, 1e-4};  // wider: the line above leaves out eps, 1e-6 beside sqrt(v) = 0.02
  CHECK(mismatch(parameters[0].tensor, at::full({2}, -0.01 * std::sqrt(10.0)), beside_eps) == "");
  CHECK(optimizer->grad_norm().item<double>() == testing::Approx(std::sqrt(100.25)).epsilon(1e-6));
}

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
    CHECK(mismatch(ema, want, kClose) == "");
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
    CHECK(mismatch(optimizer->state_dict()["ema.b.weight"], want, kClose) == "");
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
