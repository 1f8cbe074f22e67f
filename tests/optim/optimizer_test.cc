// Lamb, AdamW, Adam, BertAdam and StableAdamW compared with float64 goldens; their properties.
#include "optim/optimizer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
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
  config.beta2 = options.value("beta2", config.beta2);
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

TEST_CASE("Lamb, AdamW, Adam, BertAdam and StableAdamW equal the float64 goldens over 100 steps", "[optim][golden]") {
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
  CHECK(fails(run_of("stable_adamw"), [](OptimizerConfig& c) { c.type = OptimizerType::kAdamW; }));
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
  for (const char* type : {"lamb", "adamw", "adam", "bert_adam", "stable_adamw"}) {
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

}  // namespace bert
