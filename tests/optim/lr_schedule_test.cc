// Learning-rate schedules compared with the programs they come from.
#include "optim/lr_schedule.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "optim/lamb.h"
#include "tests/testing.h"

namespace bert {
namespace {

using nlohmann::json;

json golden() { return json::parse(std::ifstream(testing::golden("lr_schedules.json"))); }

LrSchedule schedule_of(const json& entry) {
  const std::string type = entry["type"];
  ScheduleConfig config{.type = value_named<ScheduleType>(type).value(),
                        .warmup_proportion = entry["warmup_proportion"]};
  if (type.starts_with("poly") || type == "tensorflow") config.degree = entry["degree"];
  if (type == "wsd") {
    config.decay_type = value_named<WsdDecay>(entry["decay_type"].get<std::string>()).value();
    config.decay_proportion = entry["decay_proportion"];
  }
  config.min_lr_ratio = entry.value("min_lr_ratio", 0.0);
  return make_schedule(config, entry["lr"], entry["max_steps"]);
}

/// The first step among the entry's points at which the schedule gives another rate, or 0.
int64_t first_difference(const json& entry, const LrSchedule& schedule) {
  for (const json& point : entry["points"]) {
    const int64_t step = point[0];
    const double want = point[1];
    if (schedule(step - 1) != testing::Approx(want).epsilon(1e-9).margin(0.0)) return step;
  }
  return 0;
}

/// Learning rates of NVIDIA's PolyWarmUpScheduler (github.com/NVIDIA/DeepLearningExamples at 729963dd,
/// PyTorch/LanguageModeling/BERT/schedulers.py) by step, counted from 1. Issue 522 there logs steps 1880 to 1882.
using Published = std::vector<std::pair<int64_t, double>>;
const Published kPhase1{{1, 2.9986455e-6},
                        {100, 2.9986455e-4},
                        {1880, 5.63745356e-3},
                        {1881, 5.64045221e-3},
                        {1882, 5.64345085e-3},
                        {2000, 5.99729102e-3},
                        {2001, 5.07589459e-3},
                        {3000, 4.54474768e-3},
                        {5000, 3.22870755e-3},
                        {7037, 7.15198540e-5},
                        {7038, 0.0}};
const Published kPhase2{{1, 1.99936020e-5},    {200, 3.99872041e-3},  {201, 3.73395480e-3}, {500, 3.29873277e-3},
                        {1000, 2.40068235e-3}, {1562, 1.01176698e-4}, {1563, 0.0}};

constexpr const char* kTypes[] = {"poly", "poly_rebased", "linear", "cosine", "constant", "tensorflow", "wsd"};

}  // namespace

TEST_CASE("The reference's schedule gives the published learning rates", "[unit][optim]") {
  const auto check = [](const LrSchedule& schedule, const Published& published) {
    for (const auto& [step, rate] : published) {
      INFO("step " << step);
      CHECK(schedule(step - 1) == testing::Approx(rate).epsilon(2e-8).margin(0.0));
    }
  };
  check(make_schedule({.warmup_proportion = 0.2843}, 6e-3, 7038), kPhase1);
  check(make_schedule({.warmup_proportion = 0.128}, 4e-3, 1563), kPhase2);
  // Rates that the reference logged in fp32, DeepLearningExamples issue 522.
  const LrSchedule phase1 = make_schedule({}, 6e-3, 7038);
  CHECK(phase1(1879) == testing::Approx(0.0056374535622259435).epsilon(1e-7));
  CHECK(phase1(1880) == testing::Approx(0.005640452207737765).epsilon(1e-7));
  CHECK(phase1(1881) == testing::Approx(0.005643450853249588).epsilon(1e-7));
}

TEST_CASE("Schedules equal the programs they come from", "[optim][golden]") {
  for (const json& entry : golden()) {
    INFO(entry["type"] << " over " << entry["max_steps"] << " steps");
    CHECK(first_difference(entry, schedule_of(entry)) == 0);
  }
}

TEST_CASE("The schedules' golden notices a changed constant", "[optim][golden]") {
  for (const json& entry : golden()) {
    if (entry["max_steps"] != 1563) continue;
    INFO(entry["type"]);
    LrSchedule warmup = schedule_of(entry), first = warmup, decay = warmup;
    warmup.warmup_proportion *= 1.0001;
    CHECK(first_difference(entry, warmup) != 0);
    first.first_step = 1 - first.first_step;
    CHECK(first_difference(entry, first) != 0);
    decay.decay = decay.decay == LrDecay::kPolyRebased ? LrDecay::kPoly : LrDecay::kPolyRebased;
    CHECK(first_difference(entry, decay) != 0);
  }
}

TEST_CASE("A schedule ends at exactly 0 and is never negative, whatever its options", "[unit][optim]") {
  for (const std::string type : kTypes) {
    const bool from_zero = type.starts_with("tensorflow"), constant = type == "constant";
    for (const double warmup : {0.0, 0.1, 0.15, constant ? 1.0 : 0.99}) {
      INFO(type << ", warm-up " << warmup);
      ScheduleConfig config{.type = value_named<ScheduleType>(type).value(), .warmup_proportion = warmup};
      if (type == "wsd") config.decay_proportion = std::min(0.1, 1.0 - warmup);
      const LrSchedule schedule = make_schedule(config, 1e-3, 10);
      for (int64_t step = 0; step < 25; ++step) {
        CHECK(schedule(step) >= 0.0);
        CHECK(schedule(step) <= 1e-3);
      }
      CHECK(schedule(from_zero ? 10 : 9) == (constant ? 1e-3 : 0.0));
      CHECK(schedule(1000) == (constant ? 1e-3 : 0.0));
    }
  }
}

TEST_CASE("A re-based schedule does not jump at the end of the warm-up", "[unit][optim]") {
  constexpr int64_t kSteps = 10000;
  for (const char* type : {"poly_rebased", "linear", "cosine", "wsd", "poly"}) {
    const LrSchedule schedule =
        make_schedule({.type = value_named<ScheduleType>(type).value(), .warmup_proportion = 0.2}, 1.0, kSteps);
    double largest = 0.0;
    for (int64_t step = 1; step < 9000; ++step) {
      largest = std::max(largest, std::abs(schedule(step) - schedule(step - 1)));
    }
    INFO(type);
    CHECK((largest < 1e-3) == (std::string(type) != "poly"));
  }
}

TEST_CASE("A warm-up and a decay of other steps leave the rest of a schedule", "[unit][optim]") {
  const LrSchedule planned = make_schedule(
      {.type = ScheduleType::kWsd, .warmup_proportion = 0.5, .decay_proportion = 0.5, .min_lr_ratio = 0.1}, 1.0, 1000);
  const LrSchedule warm = with_warmup(planned, 20);
  CHECK(warm(9) == testing::Approx(0.1 + 0.9 / 2));  // step 10 of 20
  CHECK(warm(19) == testing::Approx(1.0));
  CHECK(warm(400) == 1.0);
  const LrSchedule decay = with_decay(warm, 40, 60);
  CHECK(decay(9) == testing::Approx(0.1 + 0.9 / 2));
  CHECK(decay(39) == testing::Approx(1.0));
  CHECK(decay(49) == testing::Approx(0.1 + 0.9 / 2));
  CHECK(decay(59) == testing::Approx(0.1));
  const LrSchedule sooner = with_decay(warm, 10, 20);  // the warm-up ends where the decay begins
  CHECK(sooner(9) == testing::Approx(1.0));
  CHECK(sooner(14) == testing::Approx(0.1 + 0.9 / 2));
}

TEST_CASE("The rate comes as a tensor from the optimizer's counter, which skipped steps do not move", "[unit][optim]") {
  const LrSchedule schedule = make_schedule({}, 6e-3, 7038);
  at::Tensor weight = at::ones({2}).requires_grad_();
  Lamb optimizer({weight});
  const at::Tensor rate = at::zeros({});
  for (const auto& [gradient, want] : {std::pair{1.0F, schedule(0)},
                                       {1.0F, schedule(1)},
                                       {std::numeric_limits<float>::infinity(), schedule(2)},
                                       {1.0F, schedule(2)},
                                       {1.0F, schedule(3)}}) {
    ops::learning_rate_out(schedule, optimizer.applied_steps(), rate);
    CHECK(rate.item<float>() == static_cast<float>(want));
    CHECK(learning_rate(schedule, optimizer.applied_steps()).equal(rate));
    weight.mutable_grad() = at::full({2}, gradient);
    optimizer.apply({.lr = rate, .inv_scale = {}, .found_inf = {}});
  }
}

TEST_CASE("Options of a schedule out of range are refused with value and range", "[unit][optim]") {
  CHECK_THROWS_WITH(make_schedule({.warmup_proportion = 1.5}, 1e-3, 10),
                    testing::Contains("schedule.warmup_proportion is 1.5, expected 0 to 1"));
  CHECK_THROWS_WITH(make_schedule({.warmup_proportion = -0.1}, 1e-3, 10),
                    testing::Contains("is -0.1, expected 0 to 1"));
  CHECK_THROWS_WITH(make_schedule({.degree = std::numeric_limits<double>::quiet_NaN()}, 1e-3, 10),
                    testing::Contains("schedule.degree is nan, expected 0 to 10"));
  CHECK_THROWS_WITH(make_schedule({.warmup_proportion = 1.0}, 1e-3, 10),
                    testing::Contains("schedule.warmup_proportion is 1, expected less than 1"));
  CHECK_THROWS_WITH(make_schedule({.type = ScheduleType::kLinear, .degree = 2.0}, 1e-3, 10),
                    testing::Contains("schedule.degree is 2, expected the default (only poly, poly_rebased and "
                                      "tensorflow use it) with type linear"));
  CHECK_THROWS_WITH(
      make_schedule({.type = ScheduleType::kConstant, .min_lr_ratio = 0.1}, 1e-3, 10),
      testing::Contains("schedule.min_lr_ratio is 0.1, expected 0 (there is no decay) with type constant"));
  CHECK_THROWS_WITH(
      make_schedule({.type = ScheduleType::kWsd, .warmup_proportion = 0.5, .decay_proportion = 0.6}, 1e-3, 10),
      testing::Contains("schedule.decay_proportion is 0.6, expected at most 1 minus warmup_proportion"));
  CHECK_THROWS_WITH(make_schedule({}, -1.0, 10), testing::Contains("optimizer.lr is -1, expected 0 to 10"));
  CHECK_THROWS_WITH(make_schedule({}, 1e-3, 0), testing::Contains("max_steps is 0"));
}

}  // namespace bert
