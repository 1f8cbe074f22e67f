// Autocast scopes and the loss scaler; the scaler's sequence of values is torch.amp.GradScaler's.
#include "optim/amp.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "optim/adam.h"
#include "optim/lamb.h"
#include "tests/testing.h"

namespace bert {
namespace {

using nlohmann::json;
using torch::Tensor;

constexpr float kInf = std::numeric_limits<float>::infinity();

Tensor scalar(double value) { return at::scalar_tensor(value, at::kFloat); }

AmpConfig config_of(const json& run) {
  return {.init_scale = run["init_scale"],
          .growth_factor = run["growth_factor"],
          .backoff_factor = run["backoff_factor"],
          .growth_interval = run["growth_interval"]};
}

/// Steps `optimizer` through the pattern with a gradient of scale or inf; the first event at which the scaler differs,
/// or -1.
template <class Step>
int64_t first_difference(const json& run, const AmpConfig& config, Tensor& parameter, const Step& step) {
  GradScaler scaler(config, at::kCPU);
  const std::string pattern = run["pattern"], stepped = run["stepped"];
  for (size_t event = 0; event < pattern.size(); ++event) {
    const Tensor before = parameter.detach().clone();
    parameter.mutable_grad() = Tensor();
    scaler.scale(parameter.sum()).backward();
    if (pattern[event] == '1') parameter.mutable_grad().fill_(kInf);
    step(scaler);
    scaler.update();
    if (parameter.equal(before) != (stepped[event] == '0') ||
        scaler.current_scale().item<float>() != run["scales"][event].get<float>() ||
        scaler.growth_tracker().item<int>() != run["trackers"][event].get<int>()) {
      return static_cast<int64_t>(event);
    }
  }
  return -1;
}

}  // namespace

TEST_CASE("GradScaler goes through torch.amp.GradScaler's scales, counters and skips", "[optim][golden]") {
  const json golden = json::parse(std::ifstream(testing::golden("grad_scaler.json")));
  for (const json& run : golden["cases"]) {
    Tensor p = at::zeros({1}).requires_grad_();
    torch::optim::SGD sgd({p}, 1.0);
    CHECK(first_difference(run, config_of(run), p, [&](GradScaler& scaler) { scaler.step(sgd); }) == -1);
    AdamW adamw({p}, {.type = "adamw", .lr = 1e-3, .weight_decay = 0.0});
    CHECK(first_difference(run, config_of(run), p, [&](GradScaler& scaler) { scaler.step(adamw, scalar(1e-3)); }) ==
          -1);
    CHECK(first_difference(run, config_of(run), p, [&](GradScaler& scaler) {
            scaler.unscale_(adamw);
            scaler.step(adamw, scalar(1e-3));
          }) == -1);
  }
}

TEST_CASE("A scaler that is saved and loaded at every event goes on through the same values", "[optim][golden]") {
  const json golden = json::parse(std::ifstream(testing::golden("grad_scaler.json")));
  for (const json& run : golden["cases"]) {
    const std::string pattern = run["pattern"];
    GradScaler scaler(config_of(run), at::kCPU);
    int64_t different = 0;
    for (size_t event = 0; event < pattern.size(); ++event) {
      GradScaler next(config_of(run), at::kCPU);
      next.load_state_dict(scaler.state_dict());
      next.record(scalar(pattern[event] == '1' ? 1.0 : 0.0));
      next.update();
      scaler.load_state_dict(next.state_dict());
      different += scaler.current_scale().item<float>() != run["scales"][event].get<float>() ||
                   scaler.growth_tracker().item<int>() != run["trackers"][event].get<int>();
    }
    CHECK(different == 0);
  }
}

TEST_CASE("A step without a rate takes that of each group", "[optim]") {
  Tensor a = at::ones({2}).requires_grad_(), b = at::ones({2}).requires_grad_();
  Lamb with_rate({a}, {.lr = 1e-2}), without({b}, {.lr = 1e-2});
  GradScaler scaler({}, at::kCPU);
  a.mutable_grad() = b.mutable_grad() = at::full({2}, 65536.0F);
  scaler.step(with_rate, scalar(1e-2));
  scaler.step(without);
  scaler.update();
  CHECK(a.equal(b));
  CHECK_FALSE(a.equal(at::ones({2})));
}

TEST_CASE("The scaler's golden notices a changed constant", "[optim][golden]") {
  const json golden = json::parse(std::ifstream(testing::golden("grad_scaler.json")));
  const json& run = golden["cases"][0];
  Tensor p = at::zeros({1}).requires_grad_();
  torch::optim::SGD sgd({p}, 1.0);
  AmpConfig config = config_of(run);
  config.growth_interval += 1;
  CHECK(first_difference(run, config, p, [&](GradScaler& scaler) { scaler.step(sgd); }) >= 0);
}

TEST_CASE("Growth counts clean steps, whatever the scale", "[optim]") {
  // DESIGN, fact 12: comparing the scale with the interval would grow at once here, as 2^20 is above 3.
  GradScaler scaler({.init_scale = 1048576.0, .growth_interval = 3}, at::kCPU);
  struct Transition {
    float found_inf, scale;
    int tracker;
  };
  for (const auto& [found_inf, scale, tracker] : {Transition{0, 1048576, 1},
                                                  {0, 1048576, 2},
                                                  {0, 2097152, 0},
                                                  {0, 2097152, 1},
                                                  {1, 1048576, 0},
                                                  {0, 1048576, 1},
                                                  {1, 524288, 0},
                                                  {1, 262144, 0}}) {
    scaler.record(scalar(found_inf));
    scaler.update();
    CHECK(scaler.current_scale().item<float>() == scale);
    CHECK(scaler.growth_tracker().item<int>() == tracker);
  }
}

TEST_CASE("A scale does not grow to inf, and a static one does not move", "[optim]") {
  GradScaler large({.init_scale = 4294967296.0, .growth_factor = 1024.0, .growth_interval = 1}, at::kCPU);
  for (int step = 0; step < 12; ++step) {
    large.record(scalar(0));
    large.update();
  }
  CHECK(large.current_scale().item<double>() == std::ldexp(1.0, 122));
  for (const AmpConfig& config : {AmpConfig{.dynamic = false, .init_scale = 128.0, .growth_interval = 1},
                                  AmpConfig{.init_scale = 128.0, .growth_factor = 1.0, .backoff_factor = 1.0}}) {
    GradScaler fixed(config, at::kCPU);
    for (const float found_inf : {1.0F, 0.0F, 0.0F}) {
      fixed.record(scalar(found_inf));
      fixed.update();
      CHECK(fixed.current_scale().item<float>() == 128.0F);
      CHECK(fixed.inv_scale().item<float>() == 1.0F / 128.0F);
    }
  }
  GradScaler fixed({.dynamic = false, .init_scale = 128.0}, at::kCPU);
  fixed.load_state_dict(GradScaler({.init_scale = 4.0}, at::kCPU).state_dict());
  CHECK(fixed.current_scale().item<float>() == 128.0F);  // it is configuration
}

TEST_CASE("A loaded scale is the one that gradients are divided by", "[optim]") {
  GradScaler saved({.init_scale = 4.0}, at::kCPU), loaded({}, at::kCPU);
  loaded.load_state_dict(saved.state_dict());
  CHECK(loaded.inv_scale().item<float>() == 0.25F);
}

TEST_CASE("Endless overflow ends with the gradient's name, the limit and what to do", "[optim]") {
  Tensor weight = at::ones({1}).requires_grad_(), bias = at::ones({1}).requires_grad_();
  const auto optimizer = make_optimizer({}, {{"a.weight", weight}, {"a.bias", bias}});
  weight.mutable_grad() = at::ones({1});
  const auto steps = [&](GradScaler& scaler, int count, float gradient) {
    bias.mutable_grad() = at::full({1}, gradient);
    for (int i = 0; i < count; ++i) {
      scaler.step(*optimizer, scalar(1e-3));
      scaler.update();
    }
  };
  for (const bool enabled : {true, false}) {
    GradScaler scaler({.min_scale = 0.0, .max_consecutive_skips = 3}, at::kCPU, enabled);
    steps(scaler, 2, kInf);
    scaler.check_progress(*optimizer);
    steps(scaler, 1, 1.0F);  // a step in between starts the count again
    CHECK(scaler.consecutive_skips().item<float>() == 0.0F);
    steps(scaler, 2, kInf);
    CHECK_NOTHROW(scaler.check_progress(*optimizer));
    steps(scaler, 1, kInf);
    CHECK(scaler.consecutive_skips().item<float>() == 3.0F);
    CHECK_THROWS_WITH(scaler.check_progress(*optimizer),
                      testing::Contains("3 steps in a row were skipped, amp.max_consecutive_skips is 3. The first "
                                        "gradient with inf or NaN is that of a.bias. Lower the learning rate"));
  }
  GradScaler falling({.init_scale = 4.0, .min_scale = 1.0, .max_consecutive_skips = 0}, at::kCPU);
  steps(falling, 2, kInf);
  CHECK_NOTHROW(falling.check_progress(*optimizer));  // 1 is not below 1
  steps(falling, 1, kInf);
  CHECK_THROWS_WITH(falling.check_progress(*optimizer),
                    testing::Contains("the loss scale fell to 0.5, below amp.min_scale 1, with 3 steps skipped in a "
                                      "row. The first gradient with inf or NaN is that of a.bias"));
}

TEST_CASE("Scaled, unscaled and stepped equals a step without a scale", "[optim]") {
  const Tensor start = at::tensor({0.5F, -1.5F, 2.0F});
  Tensor scaled = start.clone().requires_grad_(), plain = start.clone().requires_grad_();
  Lamb with({scaled}), without({plain});
  GradScaler scaler({}, at::kCPU);
  scaler.scale(scaled.square().sum()).backward();
  CHECK(scaled.grad().equal(at::tensor({65536.0F, -196608.0F, 262144.0F})));
  scaler.unscale_(with);
  CHECK(scaled.grad().equal(at::tensor({1.0F, -3.0F, 4.0F})));
  scaler.step(with, scalar(6e-3));
  scaler.update();
  plain.square().sum().backward();
  without.apply({.lr = scalar(6e-3), .inv_scale = {}, .found_inf = {}});
  CHECK(scaled.equal(plain));
}

TEST_CASE("GradScaler refuses events out of order", "[optim]") {
  Tensor p = at::ones({1}).requires_grad_();
  Lamb optimizer({p});
  GradScaler scaler({}, at::kCPU);
  CHECK_THROWS_WITH(scaler.update(), testing::Contains("without a step"));
  scaler.scale(p.sum()).backward();
  scaler.unscale_(optimizer);
  CHECK_THROWS_WITH(scaler.unscale_(optimizer), testing::Contains("twice"));
  scaler.step(optimizer, scalar(1e-3));
  CHECK_THROWS_WITH(scaler.unscale_(optimizer), testing::Contains("after step()"));
  CHECK_THROWS_WITH(scaler.step(optimizer, scalar(1e-3)), testing::Contains("twice"));
  scaler.update();
  scaler.step(optimizer, scalar(1e-3));
  CHECK_THROWS_WITH(GradScaler({.init_scale = -1.0}, at::kCPU), testing::Contains("amp.init_scale is -1"));
  CHECK_THROWS_WITH(GradScaler({.backoff_factor = 1.5}, at::kCPU), testing::Contains("amp.backoff_factor is 1.5"));
  CHECK_THROWS_WITH(GradScaler({.growth_interval = 0}, at::kCPU), testing::Contains("amp.growth_interval is 0"));
  CHECK_THROWS_WITH(GradScaler({.init_scale = 4.0, .min_scale = 8.0}, at::kCPU),
                    testing::Contains("amp.min_scale is 8, expected at most init_scale 4"));
  CHECK_THROWS_WITH(GradScaler({.max_consecutive_skips = -1}, at::kCPU),
                    testing::Contains("amp.max_consecutive_skips is -1"));
}

TEST_CASE("Several optimizers share one scale", "[optim]") {
  Tensor a = at::ones({1}).requires_grad_(), b = at::ones({1}).requires_grad_();
  Lamb first({a}), second({b});
  GradScaler scaler({}, at::kCPU);
  a.mutable_grad() = at::full({1}, kInf);
  b.mutable_grad() = at::full({1}, 65536.0F);
  scaler.step(first, scalar(1e-3));
  scaler.step(second, scalar(1e-3));
  scaler.update();
  CHECK(a.item<float>() == 1.0F);
  CHECK(b.item<float>() != 1.0F);
  CHECK(scaler.current_scale().item<float>() == 32768.0F);
}

TEST_CASE("The scaler's state survives saving, and a disabled scaler changes nothing", "[optim]") {
  GradScaler scaler({.init_scale = 1024.0}, at::kCPU), other({}, at::kCPU);
  scaler.record(scalar(0));
  scaler.update();
  other.load_state_dict(scaler.state_dict());
  CHECK(other.current_scale().item<float>() == 1024.0F);
  CHECK(other.growth_tracker().item<int>() == 1);
  CHECK_THROWS_WITH(other.load_state_dict(StateDict()), testing::Contains("scale"));

  GradScaler off({}, at::kCPU, false);
  const Tensor loss = at::ones({});
  CHECK(off.scale(loss).is_same(loss));
  CHECK(off.inv_scale().item<float>() == 1.0F);
  off.update();
}

TEST_CASE("unscale_ finds inf and NaN in any floating type", "[optim]") {
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
    for (const float value : {1.0F, kInf, -kInf, std::numeric_limits<float>::quiet_NaN()}) {
      Tensor p = at::zeros({70000}, dtype).requires_grad_();
      torch::optim::SGD sgd({p}, 1.0);
      GradScaler scaler({.init_scale = 2.0}, at::kCPU);
      p.mutable_grad() = at::zeros({70000}, dtype);
      p.mutable_grad()[69999].fill_(value);
      scaler.step(sgd);
      scaler.update();
      CHECK((p[69999].item<float>() == -0.5F) == (value == 1.0F));
      CHECK(scaler.current_scale().item<float>() == (value == 1.0F ? 2.0F : 1.0F));
    }
  }
}

TEST_CASE("AutocastGuard sets, nests and puts back", "[optim]") {
  const Tensor x = at::ones({2, 2}), weight = at::ones({2, 2}).requires_grad_();
  const auto dtype = [&] { return at::matmul(x, weight).scalar_type(); };
  CHECK(dtype() == at::kFloat);
  {
    const AutocastGuard bf16(at::kCPU, Precision::kBf16);
    CHECK(dtype() == at::kBFloat16);
    {
      const AutocastGuard fp32(at::kCPU, Precision::kFp32);
      CHECK(dtype() == at::kFloat);
    }
    CHECK(dtype() == at::kBFloat16);
    {
      const AutocastGuard fp16(at::kCPU, Precision::kFp16);
      CHECK(dtype() == at::kHalf);
    }
    CHECK(dtype() == at::kBFloat16);
  }
  CHECK(dtype() == at::kFloat);
  CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST_CASE("Precisions have names, a dtype of the weights, and need a scale or not", "[optim]") {
  CHECK(parse_precision("bf16-weights") == Precision::kBf16Weights);
  CHECK_THROWS_WITH(parse_precision("fp8"),
                    testing::Contains("\"fp8\", expected one of: fp32, tf32, bf16, fp16, bf16-weights"));
  CHECK(weights_dtype(Precision::kBf16) == at::kFloat);
  CHECK(weights_dtype(Precision::kFp16Weights) == at::kHalf);
  CHECK(needs_loss_scale(Precision::kFp16));
  CHECK_FALSE(needs_loss_scale(Precision::kBf16Weights));
}

}  // namespace bert
