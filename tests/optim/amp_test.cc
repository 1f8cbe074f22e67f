// The loss scaler. Its sequence of values is that of torch.amp.GradScaler.
#include "optim/amp.h"

#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "optim/adam.h"
#include "optim/lamb.h"
#include "tests/support/optimizer_testing.h"
#include "tests/testing.h"

namespace bert {
namespace {

using nlohmann::json;
using testing::scalar;
using torch::Tensor;

constexpr float kInf = std::numeric_limits<float>::infinity();

/// A pattern of events. tests/golden/grad_scaler.py explains the letters.
struct Pattern {
  AmpConfig config;
  size_t optimizers;
  std::string events, stepped;
  std::vector<float> scales;
  std::vector<int> trackers;
};

std::vector<Pattern> patterns() {
  const json golden = json::parse(std::ifstream(testing::golden("grad_scaler.json")));
  const std::string alphabet = golden["alphabet"];
  const auto scales = golden["scales"].get<std::vector<float>>();
  std::vector<Pattern> result;
  for (const json& run : golden["patterns"]) {
    const json& config = golden["configs"][run[0].get<size_t>()];
    Pattern& pattern = result.emplace_back(Pattern{.config = {.init_scale = config["init_scale"],
                                                              .growth_factor = config["growth_factor"],
                                                              .backoff_factor = config["backoff_factor"],
                                                              .growth_interval = config["growth_interval"]},
                                                   .optimizers = run[1],
                                                   .events = run[2],
                                                   .stepped = run[3],
                                                   .scales = {},
                                                   .trackers = {}});
    const auto digit = [&](const json& digits, size_t at) { return alphabet.find(digits.get<std::string>()[at]); };
    for (size_t event = 0; event < pattern.stepped.size(); ++event) {
      pattern.scales.push_back(scales[64 * digit(run[4], 2 * event) + digit(run[4], 2 * event + 1)]);
      pattern.trackers.push_back(static_cast<int>(digit(run[5], event)));
    }
  }
  return result;
}

bool is_in(const char* letters, char letter) { return std::string(letters).find(letter) != std::string::npos; }

/// One parameter and its optimizer: torch's SGD or ours.
class Side {
 public:
  explicit Side(bool ours) {
    if (ours) {
      adamw_.emplace(std::vector<Tensor>{parameter}, OptimizerConfig{.lr = 1e-3, .weight_decay = 0.0});
    } else {
      sgd_.emplace(std::vector<Tensor>{parameter}, 1.0);
    }
  }

  void take(char letter, GradScaler& scaler) {
    if (is_in("iIj", letter)) parameter.mutable_grad()[1].fill_(kInf);
    if (is_in("nN", letter)) parameter.mutable_grad()[1].fill_(std::numeric_limits<float>::quiet_NaN());
    if (is_in("FINuj", letter)) {
      adamw_ ? scaler.unscale_(*adamw_) : scaler.unscale_(*sgd_);
    }
    if (is_in("fFiInN", letter)) {
      adamw_ ? scaler.step(*adamw_) : scaler.step(*sgd_);
    }
  }

  Tensor parameter = at::zeros({2}).requires_grad_();

 private:
  std::optional<torch::optim::SGD> sgd_;
  std::optional<AdamW> adamw_;
};

/// The first event at which the scaler differs from the pattern, or -1. is_ours(i): true if the i-th optimizer is ours.
template <class IsOurs>
int64_t first_difference(const Pattern& pattern, const AmpConfig& config, const IsOurs& is_ours) {
  GradScaler scaler(config, at::kCPU);
  std::vector<Side> sides;
  for (size_t i = 0; i < pattern.optimizers; ++i) sides.emplace_back(is_ours(i));
  for (size_t event = 0; event < pattern.stepped.size(); ++event) {
    int stepped = 0;
    std::vector<Tensor> before;
    for (size_t i = 0; i < sides.size(); ++i) {
      Tensor& parameter = sides[i].parameter;
      before.push_back(parameter.detach().clone());
      parameter.mutable_grad() = Tensor();
      scaler.scale(parameter.sum()).backward();
    }
    for (size_t i = 0; i < sides.size(); ++i) sides[i].take(pattern.events[event * sides.size() + i], scaler);
    scaler.update();
    for (size_t i = 0; i < sides.size(); ++i) stepped |= sides[i].parameter.equal(before[i]) ? 0 : 1 << i;
    if (stepped != pattern.stepped[event] - '0' || scaler.current_scale().item<float>() != pattern.scales[event] ||
        scaler.growth_tracker().item<int>() != pattern.trackers[event]) {
      return static_cast<int64_t>(event);
    }
  }
  return -1;
}

constexpr auto kTorchs = [](size_t) { return false; };
constexpr auto kOurs = [](size_t) { return true; };
constexpr auto kMixed = [](size_t i) { return i % 2 == 0; };

}  // namespace

TEST_CASE("GradScaler goes through torch.amp.GradScaler's scales, counters and skips", "[optim][golden]") {
  const std::vector<Pattern> all = patterns();
  CHECK(all.size() == 1003);
  for (const Pattern& pattern : all) {
    INFO(pattern.events);
    CHECK(first_difference(pattern, pattern.config, kTorchs) == -1);
    CHECK(first_difference(pattern, pattern.config, kOurs) == -1);
    if (pattern.optimizers > 1) CHECK(first_difference(pattern, pattern.config, kMixed) == -1);
  }
}

TEST_CASE("The scaler's golden notices a changed constant", "[optim][golden]") {
  const std::vector<Pattern> all = patterns();
  const auto differences = [&](const auto& change) {
    int64_t count = 0;
    for (const Pattern& pattern : all) {
      AmpConfig config = pattern.config;
      change(config);
      count += first_difference(pattern, config, kOurs) >= 0 ? 1 : 0;
    }
    return count;
  };
  CHECK(differences([](AmpConfig&) {}) == 0);
  CHECK(differences([](AmpConfig& config) { config.growth_interval += 1; }) > 100);
  CHECK(differences([](AmpConfig& config) { config.growth_factor *= 1.01; }) > 100);
  CHECK(differences([](AmpConfig& config) { config.backoff_factor *= 0.99; }) > 100);
  int64_t unnoticed = 0;  // inf in the last optimizer's gradients
  for (Pattern pattern : all) {
    if (pattern.optimizers == 1) continue;
    for (size_t at = pattern.optimizers - 1; at < pattern.events.size(); at += pattern.optimizers) {
      char& letter = pattern.events[at];
      if (is_in("iInNj", letter)) letter = letter == 'j' ? 'u' : 'f';
    }
    unnoticed += first_difference(pattern, pattern.config, kOurs) < 0 ? 1 : 0;
  }
  CHECK(unnoticed < 600);
}

TEST_CASE("A scaler that is saved and loaded at every event goes on through the same values", "[optim][golden]") {
  for (const Pattern& pattern : patterns()) {
    if (pattern.optimizers > 1) continue;
    GradScaler scaler(pattern.config, at::kCPU);
    int64_t different = 0;
    for (size_t event = 0; event < pattern.events.size(); ++event) {
      GradScaler next(pattern.config, at::kCPU);
      next.load_state_dict(scaler.state_dict());
      next.record(scalar(is_in("iInNj", pattern.events[event]) ? 1.0 : 0.0));
      next.update();
      scaler.load_state_dict(next.state_dict());
      different += scaler.current_scale().item<float>() != pattern.scales[event] ||
                   scaler.growth_tracker().item<int>() != pattern.trackers[event];
    }
    CHECK(different == 0);
  }
}

TEST_CASE("A step without a rate takes that of each group", "[unit][optim]") {
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

TEST_CASE("Growth counts clean steps, whatever the scale", "[unit][optim]") {
  // A scaler that compared the scale with the interval, instead of the number of clean steps, would grow at once here:
  // 2^20 is above 3.
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

TEST_CASE("A scale does not grow to inf, and a static one does not move", "[unit][optim]") {
  GradScaler large({.init_scale = 4294967296.0, .growth_factor = 1024.0, .growth_interval = 1}, at::kCPU);
  for (int step = 0; step < 12; ++step) {
    large.record(scalar(0));
    large.update();
  }
  CHECK(large.current_scale().item<double>() == std::ldexp(1.0, 122));
  for (const AmpConfig& config :
       {AmpConfig{.dynamic = false, .init_scale = 128.0, .growth_interval = 1},
        AmpConfig{.dynamic = false, .init_scale = 128.0, .growth_factor = 1.0, .backoff_factor = 1.0}}) {
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
  CHECK(fixed.current_scale().item<float>() == 128.0F);  // a fixed scale is configuration
}

TEST_CASE("A loaded scale is the one that gradients are divided by", "[unit][optim]") {
  GradScaler saved({.init_scale = 4.0}, at::kCPU), loaded({}, at::kCPU);
  loaded.load_state_dict(saved.state_dict());
  CHECK(loaded.inv_scale().item<float>() == 0.25F);
}

TEST_CASE("Endless overflow ends with the gradient's name, the limit and what to do", "[unit][optim]") {
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
    GradScaler scaler({.max_consecutive_skips = 3, .min_scale = 0.0}, at::kCPU, enabled);
    steps(scaler, 2, kInf);
    scaler.check_progress(*optimizer);
    steps(scaler, 1, 1.0F);  // a step in between restarts the count
    CHECK(scaler.consecutive_skips().item<float>() == 0.0F);
    steps(scaler, 2, kInf);
    CHECK_NOTHROW(scaler.check_progress(*optimizer));
    steps(scaler, 1, kInf);
    CHECK(scaler.consecutive_skips().item<float>() == 3.0F);
    CHECK_THROWS_WITH(scaler.check_progress(*optimizer),
                      testing::Contains("3 steps in a row were skipped, amp.max_consecutive_skips is 3. The first "
                                        "gradient with inf or NaN is that of a.bias. Lower the learning rate"));
  }
  GradScaler falling({.init_scale = 4.0, .max_consecutive_skips = 0, .min_scale = 1.0}, at::kCPU);
  steps(falling, 2, kInf);
  CHECK_NOTHROW(falling.check_progress(*optimizer));  // 1 is not below 1
  steps(falling, 1, kInf);
  CHECK_THROWS_WITH(falling.check_progress(*optimizer),
                    testing::Contains("the loss scale fell to 0.5, below the least, 1, with 3 steps skipped in a "
                                      "row. The first gradient with inf or NaN is that of a.bias"));
}

TEST_CASE("Scaled, unscaled and stepped equals a step without a scale", "[unit][optim]") {
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

TEST_CASE("Scaled and stepped equals a step without a scale, with gradients as small as eps", "[unit][optim]") {
  const Tensor start = at::tensor({0.5F, -1.5F, 2.0F});
  Tensor scaled = start.clone().requires_grad_(), plain = start.clone().requires_grad_();
  Lamb with({scaled}), without({plain});
  GradScaler scaler({}, at::kCPU);
  scaler.scale(scaled.square().sum() * 1e-6).backward();
  scaler.step(with, scalar(6e-3));
  scaler.update();
  (plain.square().sum() * 1e-6).backward();
  without.apply({.lr = scalar(6e-3), .inv_scale = {}, .found_inf = {}});
  CHECK_FALSE(scaled.equal(start));
  CHECK(scaled.equal(plain));
}

TEST_CASE("The scale falls for a gradient that became inf after unscale_", "[unit][optim]") {
  Tensor p = at::ones({1}).requires_grad_();
  Lamb optimizer({p});
  GradScaler scaler({.init_scale = 1024.0}, at::kCPU);
  scaler.scale(p.sum()).backward();
  scaler.unscale_(optimizer);
  p.mutable_grad().fill_(INFINITY);
  scaler.step(optimizer, scalar(1e-3));
  scaler.update();
  CHECK(p.item<float>() == 1.0F);
  CHECK(scaler.current_scale().item<float>() == 512.0F);
  CHECK(scaler.consecutive_skips().item<float>() == 1.0F);
}

TEST_CASE("A BertOptimizer behind torch's type is stepped as one", "[unit][optim]") {
  for (const bool enabled : {true, false}) {
    for (const auto dtype : {at::kFloat, at::kHalf}) {
      CAPTURE(enabled, dtype);
      Tensor p = at::ones({3}, dtype).requires_grad_(), q = at::ones({3}, dtype).requires_grad_();
      Lamb direct({p}), lamb({q});
      torch::optim::Optimizer& behind = lamb;
      GradScaler scaler({.init_scale = 8.0}, at::kCPU, enabled), other({.init_scale = 8.0}, at::kCPU, enabled);
      for (const float gradient : {2.0F, kInf, kInf}) {
        const Tensor scaled = at::full({3}, gradient, p.options().requires_grad(false));
        p.mutable_grad() = scaled.clone();
        q.mutable_grad() = scaled.clone();
        scaler.step(direct);
        other.step(behind);
        scaler.update();
        other.update();
        CHECK(q.equal(p));
        CHECK(q.grad().equal(scaled));  // unscaled within the update
        CHECK(other.current_scale().equal(scaler.current_scale()));
      }
      CHECK_FALSE(q.equal(at::ones({3}, dtype)));
      CHECK(other.consecutive_skips().item<float>() == 2.0F);
      CHECK(other.current_scale().item<float>() == (enabled ? 2.0F : 1.0F));
    }
  }
}

TEST_CASE("Finite gradients whose norm fp32 cannot hold skip a BertOptimizer's step, and only that", "[unit][optim]") {
  Tensor p = at::ones({4}).requires_grad_(), q = at::ones({4}).requires_grad_();
  Lamb lamb({p});
  torch::optim::SGD sgd({q}, 1e-30);
  GradScaler scaler({.init_scale = 1.0, .min_scale = 0.0}, at::kCPU);
  for (const auto& [gradient, scale] : {std::pair{3e38F, 0.5F}, {1e37F, 0.5F}}) {
    p.mutable_grad() = at::full({4}, gradient);
    scaler.unscale_(lamb);
    scaler.step(lamb);
    scaler.update();
    CHECK(lamb.found_inf().item<float>() == (gradient == 3e38F ? 1.0F : 0.0F));
    CHECK(scaler.current_scale().item<float>() == scale);
  }
  q.mutable_grad() = at::full({4}, 3e38F);
  scaler.update(1.0);
  scaler.step(sgd);
  scaler.update();
  CHECK(scaler.current_scale().item<float>() == 1.0F);
  CHECK_FALSE(q.equal(at::ones({4})));
}

TEST_CASE("A scale that is set holds from there on", "[unit][optim]") {
  GradScaler scaler({.growth_interval = 3}, at::kCPU);
  for (int step = 0; step < 2; ++step) {
    scaler.record(scalar(0));
    scaler.update();
  }
  scaler.record(scalar(1));
  scaler.update(32.0);  // not lowered, and one step later not grown: PyTorch's tracker stays
  CHECK(scaler.current_scale().item<float>() == 32.0F);
  CHECK(scaler.inv_scale().item<float>() == 1.0F / 32.0F);
  CHECK(scaler.growth_tracker().item<int>() == 2);
  CHECK(scaler.consecutive_skips().item<float>() == 1.0F);
  scaler.record(scalar(0));
  scaler.update();
  CHECK(scaler.current_scale().item<float>() == 64.0F);
  scaler.update(16.0);  // without a step
  CHECK(scaler.current_scale().item<float>() == 16.0F);
  for (const double wrong : {0.0, -1.0, 1e300, std::numeric_limits<double>::quiet_NaN()}) {
    CHECK_THROWS_WITH(scaler.update(wrong), testing::Contains("GradScaler::update: the new scale is "));
  }
  CHECK(scaler.current_scale().item<float>() == 16.0F);
  GradScaler fixed({.dynamic = false}, at::kCPU), off({}, at::kCPU, false);
  fixed.update(4.0);
  off.update(4.0);
  CHECK(fixed.current_scale().item<float>() == 4.0F);
  CHECK(off.current_scale().item<float>() == 1.0F);
}

TEST_CASE("A sparse gradient is unscaled and looked at", "[unit][optim]") {
  for (const float last : {8.0F, kInf}) {
    Tensor p = at::zeros({3}).requires_grad_();
    torch::optim::SGD sgd({p}, 1.0);
    GradScaler scaler({.init_scale = 4.0}, at::kCPU);
    p.mutable_grad() =
        at::sparse_coo_tensor(at::ones({1, 2}, at::kLong), at::tensor({4.0F, last}), {3}, at::TensorOptions());
    scaler.step(sgd);
    scaler.update();
    CHECK(p.equal(at::tensor({0.0F, last == kInf ? 0.0F : -3.0F, 0.0F})));
    CHECK(scaler.current_scale().item<float>() == (last == kInf ? 2.0F : 4.0F));
  }
}

TEST_CASE("GradScaler refuses events out of order", "[unit][optim]") {
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
  CHECK_THROWS_WITH(GradScaler({.growth_factor = 1.0}, at::kCPU),
                    testing::Contains("amp.growth_factor is 1, expected above 1 with dynamic true"));
  CHECK_THROWS_WITH(GradScaler({.backoff_factor = 1.0}, at::kCPU),
                    testing::Contains("amp.backoff_factor is 1, expected below 1 with dynamic true"));
  CHECK_THROWS_WITH(GradScaler({.growth_interval = 0}, at::kCPU), testing::Contains("amp.growth_interval is 0"));
  CHECK_THROWS_WITH(GradScaler({.init_scale = 4.0, .min_scale = 8.0}, at::kCPU),
                    testing::Contains("amp.min_scale is 8, expected at most init_scale 4"));
  CHECK_THROWS_WITH(GradScaler({.max_consecutive_skips = -1}, at::kCPU),
                    testing::Contains("amp.max_consecutive_skips is -1"));
  const int fields = testing::with_each_nan(AmpConfig(), [](const std::string& name, const AmpConfig& config) {
    CHECK_THROWS_WITH(GradScaler(config, at::kCPU), testing::Contains("amp." + name + " is nan, expected "));
  });
  CHECK(fields == 1);
}

TEST_CASE("A step for which nothing was checked is refused", "[unit][optim]") {
  Tensor p = at::ones({1}).requires_grad_(), q = at::ones({1}).requires_grad_();
  Lamb lamb({p});
  torch::optim::SGD sgd({p}, 1.0), other({q}, 1.0);
  for (const bool unscale_first : {false, true}) {
    GradScaler scaler({}, at::kCPU);
    p.mutable_grad() = Tensor();
    if (unscale_first) {
      scaler.unscale_(lamb);
      scaler.unscale_(sgd);
    }
    CHECK_THROWS_WITH(scaler.step(lamb), testing::Contains("no inf checks were recorded for this optimizer"));
    CHECK_THROWS_WITH(scaler.step(sgd), testing::Contains("no inf checks were recorded for this optimizer"));
    CHECK_THROWS_WITH(scaler.update(), testing::Contains("without a step"));
    q.mutable_grad() = at::ones({1});  // another optimizer's gradient moves the scale
    scaler.step(other);
    scaler.update();
    CHECK(scaler.growth_tracker().item<int>() == 1);
    p.mutable_grad() = at::ones({1});
    CHECK_NOTHROW(scaler.step(lamb));
  }
}

TEST_CASE("Several optimizers share one scale", "[unit][optim]") {
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

TEST_CASE("The scaler's state survives saving, and a disabled scaler changes nothing", "[unit][optim]") {
  GradScaler scaler({.init_scale = 1024.0}, at::kCPU), other({}, at::kCPU);
  scaler.record(scalar(0));
  scaler.update();
  other.load_state_dict(scaler.state_dict());
  CHECK(other.current_scale().item<float>() == 1024.0F);
  CHECK(other.growth_tracker().item<int>() == 1);

  GradScaler off({}, at::kCPU, false);
  const Tensor loss = at::ones({});
  CHECK(off.scale(loss).is_same(loss));
  CHECK(off.state_dict().is_empty());
  off.load_state_dict(scaler.state_dict());
  CHECK(off.current_scale().item<float>() == 1.0F);
  CHECK(off.growth_tracker().item<int>() == 0);
  CHECK(off.inv_scale().item<float>() == 1.0F);
  off.update();
  CHECK_THROWS_WITH(other.load_state_dict(off.state_dict()), testing::Contains("a scaler that was not enabled"));
}

TEST_CASE("A scaler's state that is not one is refused as a whole", "[unit][optim]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto state_of = [](const Tensor& scale, const Tensor& tracker, const char* tracker_name = "growth_tracker") {
    StateDict state;
    if (scale.defined()) state.insert("scale", scale);
    if (tracker.defined()) state.insert(tracker_name, tracker);
    return state;
  };
  const Tensor scale = scalar(8.0), tracker = at::scalar_tensor(3, at::kInt);
  GradScaler scaler({.init_scale = 4.0}, at::kCPU);
  const auto refused = [&](const StateDict& state, const char* message) {
    CHECK_THROWS_WITH(scaler.load_state_dict(state), testing::Contains(message));
    CHECK(scaler.current_scale().item<float>() == 4.0F);
    CHECK(scaler.inv_scale().item<float>() == 0.25F);
    CHECK(scaler.growth_tracker().item<int>() == 0);
  };
  refused(StateDict(), "the state is empty");
  refused(state_of({}, tracker), "the state has no \"scale\"");
  refused(state_of(scale, {}), "the state has no \"growth_tracker\"");
  refused(state_of(at::full({1}, 8.0F), tracker), "\"scale\" in the state is no scalar");
  refused(state_of(scale, at::zeros({2}, at::kInt)), "\"growth_tracker\" in the state is no scalar");
  refused(state_of(scalar(nan), tracker), "\"scale\" in the state is nan, expected");
  refused(state_of(scalar(kInf), tracker), "\"scale\" in the state is inf, expected");
  refused(state_of(scalar(0.0), tracker), "\"scale\" in the state is 0, expected");
  refused(state_of(scalar(-8.0), tracker), "\"scale\" in the state is -8, expected");
  refused(state_of(at::scalar_tensor(1e300, at::kDouble), tracker), "\"scale\" in the state is 1e+300, expected");
  refused(state_of(scale, at::scalar_tensor(-1, at::kInt)), "\"growth_tracker\" in the state is -1, expected 0 to");
  const auto with = [&](const char* name, double value) {
    StateDict state = state_of(scale, tracker);
    state.insert(name, at::scalar_tensor(value, at::kDouble));
    return state;
  };
  refused(with("growth_factor", 1.0), "amp.growth_factor is 1");
  refused(with("growth_factor", nan), "amp.growth_factor is nan");
  refused(with("backoff_factor", 2.0), "amp.backoff_factor is 2");
  refused(with("growth_interval", 0.0), "\"growth_interval\" in the state is 0, expected 1 to");
  scaler.load_state_dict(state_of(scale, tracker));
  CHECK(scaler.inv_scale().item<float>() == 0.125F);
}

TEST_CASE("A state of torch.amp.GradScaler goes on with its factors and interval", "[unit][optim]") {
  StateDict state;  // the entries of its state_dict()
  state.insert("scale", at::scalar_tensor(12.0, at::kDouble));
  state.insert("growth_factor", at::scalar_tensor(3.0, at::kDouble));
  state.insert("backoff_factor", at::scalar_tensor(0.25, at::kDouble));
  state.insert("growth_interval", at::scalar_tensor(5, at::kLong));
  state.insert("_growth_tracker", at::scalar_tensor(4, at::kLong));
  GradScaler scaler({}, at::kCPU);
  scaler.load_state_dict(state);
  CHECK(scaler.growth_tracker().item<int>() == 4);
  CHECK(scaler.inv_scale().item<float>() == 1.0F / 12.0F);
  for (const auto& [found_inf, scale] : {std::pair{0.0, 36.0F}, {1.0, 9.0F}}) {
    scaler.record(scalar(found_inf));
    scaler.update();
    CHECK(scaler.current_scale().item<float>() == scale);
    CHECK(scaler.growth_tracker().item<int>() == 0);
  }
  GradScaler fixed({.dynamic = false, .init_scale = 128.0}, at::kCPU);
  fixed.load_state_dict(state);
  fixed.record(scalar(0.0));
  fixed.update();
  CHECK(fixed.current_scale().item<float>() == 128.0F);
}

TEST_CASE("A tracker beyond a shortened interval grows at the next clean step", "[unit][optim]") {
  GradScaler before({.init_scale = 8.0, .growth_interval = 100}, at::kCPU);
  for (int step = 0; step < 50; ++step) {
    before.record(scalar(0));
    before.update();
  }
  for (const int64_t interval : {50, 3}) {
    GradScaler after({.growth_interval = interval}, at::kCPU);
    after.load_state_dict(before.state_dict());
    CHECK(after.current_scale().item<float>() == 8.0F);
    for (const auto& [found_inf, scale, tracker] :
         {std::tuple{0.0, 16.0F, 0}, {0.0, 16.0F, 1}, {1.0, 8.0F, 0}, {0.0, 8.0F, 1}}) {
      after.record(scalar(found_inf));
      after.update();
      CHECK(after.current_scale().item<float>() == scale);
      CHECK(after.growth_tracker().item<int>() == tracker);
    }
  }
  GradScaler longer({.growth_interval = 51}, at::kCPU);  // not at the interval yet
  longer.load_state_dict(before.state_dict());
  CHECK(longer.growth_tracker().item<int>() == 50);
}

TEST_CASE("Skips in a row are counted on from a number, enabled or not", "[unit][optim]") {
  for (const bool enabled : {true, false}) {
    GradScaler scaler({}, at::kCPU, enabled);
    Tensor p = at::ones({1}).requires_grad_();
    Lamb optimizer({p});
    scaler.continue_skips(7);
    for (const auto& [gradient, skips] : {std::pair{kInf, 8.0F}, {kInf, 9.0F}, {1.0F, 0.0F}}) {
      p.mutable_grad() = at::full({1}, gradient);
      scaler.step(optimizer, scalar(1e-3));
      scaler.update();
      CHECK(scaler.consecutive_skips().item<float>() == skips);
    }
  }
}

TEST_CASE("unscale_ refuses fp16 gradients as PyTorch does, and a step without it takes them", "[unit][optim]") {
  const auto with_gradient = [](at::ScalarType dtype) {
    Tensor p = at::zeros({3}, dtype).requires_grad_();
    p.mutable_grad() = at::ones({3}, dtype);
    return p;
  };
  const Tensor half = with_gradient(at::kHalf), whole = with_gradient(at::kFloat);
  torch::optim::SGD sgd({whole, half}, 1.0);
  Lamb lamb({half});
  GradScaler scaler({.init_scale = 4.0}, at::kCPU);
  CHECK_THROWS_WITH(scaler.unscale_(sgd), testing::Contains("Attempting to unscale FP16 gradients."));
  CHECK_THROWS_AS(scaler.unscale_(lamb), c10::ValueError);
  CHECK_THROWS_WITH(scaler.step(sgd), testing::Contains("Attempting to unscale FP16 gradients."));
  CHECK(whole.grad().equal(at::ones({3})));  // nothing was divided
  CHECK(half.grad().equal(at::ones({3}, at::kHalf)));
  scaler.step(lamb, scalar(0.5));
  scaler.update();
  CHECK_FALSE(half.equal(at::zeros({3}, at::kHalf)));
  GradScaler off({}, at::kCPU, false);
  off.unscale_(sgd);
}

TEST_CASE("unscale_ finds inf and NaN in any floating type but fp16", "[unit][optim]") {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
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

}  // namespace bert
