// Profiles of runs: their files, and the sums and limits in these.
#include "app/train/run_profile.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/checkpoint/files.h"
#include "app/profile/step_profile.h"
#include "app/system/exit_codes.h"
#include "app/train/pretrain.h"
#include "data/io/files.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Approx;
using bert::testing::Contains;
using bert::testing::TemporaryDirectory;
using bert::testing::tiny;
using Json = nlohmann::json;

namespace {

Json json_of(const RunConfig& config, const std::string& name) {
  return Json::parse(read_file(config.run_directory + "/" + name));
}

/// Number of ranges of each phase in the trace.
std::map<std::string, int64_t> ranges_of(const Json& trace) {
  std::map<std::string, int64_t> ranges;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.value("cat", "") == "user_annotation") ++ranges[event.at("name")];
  }
  return ranges;
}

}  // namespace

TEST_CASE("A profile has the phases and operators of its steps, and changes no bit of the result", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig plain = tiny(directory, "plain"), profiled = tiny(directory, "profiled");
  for (PretrainConfig* config : {&plain, &profiled}) config->evaluate_every = 4;
  profiled.profile.steps = "3-5";
  const int64_t micro_batches = profiled.global_batch_size / profiled.micro_batch_size;
  for (const PretrainConfig& config : {plain, profiled}) REQUIRE(pretrain(config, false) == kOk);
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    const auto file_of = [&](const RunConfig& config) {
      return read_file(checkpoint_directory(config.run_directory, config.max_steps) + "/" + name);
    };
    CHECK(file_of(plain) == file_of(profiled));
  }
  CHECK_FALSE(std::filesystem::exists(plain.run_directory + "/profile.json"));

  const std::map<std::string, int64_t> ranges = ranges_of(json_of(profiled, "trace.json"));
  CHECK(ranges.at("forward") == 3 * micro_batches);
  CHECK(ranges.at("backward") == 3 * micro_batches);
  CHECK(ranges.at("reduction of gradients") == 3);
  CHECK(ranges.at("update") == 3);
  CHECK(ranges.at("evaluation") == 1);
  CHECK(ranges.at("reading data") >= 3);

  const Json profile = json_of(profiled, "profile.json");
  CHECK(profile.at("steps") == Json({3, 5}));
  double of_steps = 0;
  for (const Json& part : profile.at("parts")) {
    const bool between = part.at("name") == "evaluation" || part.at("name") == "checkpoint";
    CHECK(part.at("share").is_null() == between);
    if (!part.at("share").is_null()) of_steps += part.at("ms").get<double>();
  }
  CHECK(of_steps > 0);
  CHECK(of_steps <= profile.at("step_ms").get<double>() * (1 + 1e-9));
  const Json& operators = profile.at("operators");
  REQUIRE_FALSE(operators.empty());
  CHECK(operators.size() <= 20);
  double shares = 0;
  for (size_t i = 0; i < operators.size(); ++i) {
    if (i > 0) CHECK(operators[i - 1].at("self_ms").get<double>() >= operators[i].at("self_ms").get<double>());
    CHECK(operators[i].at("calls").get<double>() > 0);
    shares += operators[i].at("share").get<double>();
  }
  CHECK(shares <= 1 + 1e-9);
  CHECK(std::ranges::any_of(operators,
                            [](const Json& row) { return row.at("name").get<std::string>().starts_with("bert::"); }));
  CHECK(profile.at("limits").at("gemm_tflops").get<double>() > 0);
  CHECK(profile.at("limits").at("copy_gb_per_second").get<double>() > 0);
  CHECK_THAT(read_file(profiled.run_directory + "/run.log"), Contains("steps 3 to 5: "));
}

TEST_CASE("A process profiles those of the steps that it makes", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.profile.steps = "3-6";
  config.stop_at_step = 4;
  REQUIRE(pretrain(config, false) == kOk);
  CHECK(json_of(config, "profile.json").at("steps") == Json({3, 4}));
  config.stop_at_step = 8;
  REQUIRE(pretrain(config, false) == kOk);
  CHECK(json_of(config, "profile.json").at("steps") == Json({5, 6}));
  std::filesystem::remove(config.run_directory + "/profile.json");
  config.stop_at_step = 0;
  REQUIRE(pretrain(config, false) == kOk);
  CHECK_FALSE(std::filesystem::exists(config.run_directory + "/profile.json"));
}

TEST_CASE("Each step is one of the program's stops where a profile begins or ends", "[unit][trainer]") {
  RunConfig config;
  config.profile.steps = "10-15";
  const RunProfile profile(config, at::kCPU, true), none(RunConfig(), at::kCPU, true);
  CHECK(profile.next_stop(0, 100) == 9);
  CHECK(profile.next_stop(0, 5) == 5);
  CHECK(profile.next_stop(9, 100) == 15);
  CHECK(profile.next_stop(15, 100) == 100);
  CHECK(none.next_stop(0, 100) == 100);
}

TEST_CASE("A limit is the longer of the time for products and that for bytes", "[unit]") {
  const DeviceLimits limits{.flops_per_second = 1e12, .bytes_per_second = 1e10};
  const auto of = [&](double flops, double bytes) {
    return limit_ms({.name = "a", .phase = {}, .calls = 1, .self_ms = 1, .flops = flops, .bytes = bytes}, limits);
  };
  CHECK(of(2e9, 1e7) == Approx(2.0));
  CHECK(of(1e9, 3e7) == Approx(3.0));
  CHECK(of(0, 0) == 0.0);
}

TEST_CASE("A report of a profile is that of one step on average", "[unit]") {
  const auto time = [](const char* name, const char* phase, int64_t calls, double ms, double flops) {
    return OperatorTime{.name = name, .phase = phase, .calls = calls, .self_ms = ms, .flops = flops, .bytes = 0};
  };
  const ProfileTimes times{
      .ms = 25,
      .phase_ms = {{"forward", 8}, {"update", 10}, {"evaluation", 5}},
      .operators = {time("bert::linear", "forward", 4, 6, 4e9), time("aten::add_", "forward", 2, 1, 0),
                    time("aten::add_", "update", 6, 9, 0), time("bert::linear", "evaluation", 9, 5, 9e9)}};
  const DeviceLimits limits{.flops_per_second = 1e12, .bytes_per_second = 1e10};
  const Json report = profile_report(times, limits, 7, 8);
  CHECK(report.at("step_ms") == 10.0);  // (25 - 5) / 2
  CHECK(report.at("parts") == Json::parse(R"([{"name": "forward", "ms": 4.0, "share": 0.4},
    {"name": "update", "ms": 5.0, "share": 0.5}, {"name": "evaluation", "ms": 2.5, "share": null}])"));
  CHECK(report.at("operators") == Json::parse(R"([
    {"name": "aten::add_", "calls": 4.0, "self_ms": 5.0, "share": 0.5, "flops": 0.0, "bytes": 0.0, "limit_ms": null},
    {"name": "bert::linear", "calls": 2.0, "self_ms": 3.0, "share": 0.3, "flops": 2e9, "bytes": 0.0, "limit_ms": 2.0}])"));
  const Json of_groups = breakdown(times, limits, 2, /*update_bytes=*/10'000'000), groups = of_groups.at("groups");
  REQUIRE(groups.size() == 3);
  CHECK(groups[0].at("group") == "linear layers");
  CHECK(groups[0].at("self_ms") == 5.5);
  CHECK(groups[1].at("group") == "optimizer");
  CHECK(groups[1].at("limit_ms").get<double>() == Approx(1.0));
  CHECK(groups[2].at("group") == "other operators of LibTorch");
  const Json gaps = of_groups.at("gaps");  // the linear layers are below their limit of 6.5 ms
  REQUIRE(gaps.size() == 2);
  CHECK(gaps[0].at("group") == "optimizer");
  CHECK(gaps[0].at("gap_ms").get<double>() == Approx(3.5));
  CHECK(gaps[1] == Json({{"group", "other operators of LibTorch"}, {"gap_ms", 0.5}}));
}
