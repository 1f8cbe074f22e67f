// A grid of hyper-parameters: its runs, its table, and how it goes on.
#include "app/finetune/sweep.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/finetune/finetuning_run.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"
#include "data/io/files.h"
#include "tests/support/command_testing.h"
#include "tests/support/tiny_finetuning.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Contains;
using bert::testing::run_command;
using bert::testing::TemporaryDirectory;
using bert::testing::tiny_task;
using nlohmann::json;

namespace {

json json_of(const std::string& path) { return json::parse(read_file(path)); }

}  // namespace

TEST_CASE("A sweep makes its runs, a table and a summary, and does not repeat finished runs", "[unit][finetune]") {
  const TemporaryDirectory directory;
  const FinetuneConfig config = tiny_task(directory, "sweep");
  json file = json::parse(to_json(config));
  file["sweep"] = {{"optimizer.lr", {0, 2e-3}}, {"max_steps", {100}}};
  std::ofstream(directory.path("sweep.json")) << file.dump(1);
  const auto first = run_command(finetune_command, {"finetune", directory.path("sweep.json")});
  INFO(first.err);
  REQUIRE(first.code == kOk);
  const std::string trained = "max_steps=100,optimizer.lr=0.002", untrained = "max_steps=100,optimizer.lr=0";
  const json summary = json_of(config.run_directory + "/summary.json");
  CHECK(summary["metric"] == "accuracy");
  CHECK(summary["best"] == trained);
  REQUIRE(summary["runs"].size() == 2);
  CHECK(summary["runs"][0]["values"] == json({{"optimizer.lr", 0.002}, {"max_steps", 100}}));
  for (const json& run : summary["runs"]) {
    const std::string of_run = config.run_directory + "/" + run["name"].get<std::string>() + "/summary.json";
    CHECK(run["accuracy"] == json_of(of_run)["accuracy"]);
    CHECK(json_of(of_run)["steps"] == 100);
  }
  CHECK(summary["runs"][1]["name"] == untrained);
  CHECK_THAT(first.err, Contains("best: " + trained));

  const std::string log = config.run_directory + "/" + trained + "/metrics.jsonl";
  const auto written = std::filesystem::last_write_time(log);
  file["sweep"]["optimizer.lr"] = {0, 2e-3, 1e-3};
  std::ofstream(directory.path("sweep.json")) << file.dump(1);
  REQUIRE(run_command(finetune_command, {"finetune", directory.path("sweep.json")}).code == kOk);
  CHECK(std::filesystem::last_write_time(log) == written);
  CHECK(json_of(config.run_directory + "/summary.json")["runs"].size() == 3);
}

TEST_CASE("A sweep with seeds has means, and a directory of a run is refused", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_task(directory, "sweep");
  config.max_steps = 2;
  FinetuneSweep sweep{.keys = {"optimizer.lr"}, .runs = {}, .run_directory = config.run_directory};
  sweep.runs.push_back({.name = "optimizer.lr=0.002", .config = config});
  sweep.runs.front().config.run_directory += "/optimizer.lr=0.002";
  REQUIRE(finetune_sweep(sweep, 2, false) == kOk);
  const json series = json_of(sweep.runs.front().config.run_directory + "/summary.json")["accuracy"];
  const json run = json_of(config.run_directory + "/summary.json")["runs"][0];
  CHECK(run["accuracy"] == json({{"mean", series["mean"]}, {"std", series["std"]}}));
  sweep.run_directory = sweep.runs.front().config.run_directory + "/seed-42";
  CHECK_THROWS_WITH(finetune_sweep(sweep, 0, false), Contains("holds a run"));
}

TEST_CASE("The table of a sweep is sorted by the main metric and names the best run", "[unit][finetune]") {
  const TaskDefinition task = task_definition("mrpc");  // accuracy, then f1
  std::vector<SweepResult> results = {{.name = "a=1", .metrics = {{"accuracy", 0.5}, {"f1", 0.75}, {"loss", 1}}},
                                      {.name = "a=2", .metrics = {{"f1", 1}}},
                                      {.name = "a=10", .metrics = {{"accuracy", 0.625}, {"f1", 0.25}}}};
  sort_results(results, task);
  CHECK(sweep_table(results, task) ==
        "run       accuracy            f1\n"
        "a=10        0.6250        0.2500\n"
        "a=1         0.5000        0.7500\n"
        "a=2              -        1.0000\n"
        "best: a=10");
  results.front().deviation = 0.125;
  CHECK_THAT(sweep_table(results, task), Contains("accuracy  accuracy std") && Contains("0.6250        0.1250"));
}
