#include "app/finetune/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/distributed/environment.h"
#include "app/finetune/finetuning_run.h"
#include "app/finetune/seed_series.h"
#include "app/system/exit_codes.h"
#include "app/tasks/task_scoring.h"
#include "data/io/files.h"

namespace bert {
namespace {

/// Reads summary.json of a run, or of several seeds.
SweepResult read_result(const SweepRun& run, const TaskDefinition& task) {
  SweepResult result{.name = run.name, .metrics = {}};
  const auto summary = nlohmann::json::parse(read_file(run.config.run_directory + "/summary.json"));
  for (const auto& [name, value] : summary.items()) {
    const bool series = value.is_object() && value.contains("mean");
    const nlohmann::json& number = series ? value["mean"] : value;
    if (number.is_number()) result.metrics[name] = number.get<double>();
  }
  const std::string main = main_figure(task, result.metrics);
  if (summary.contains(main) && summary[main].is_object() && summary[main]["std"].is_number())
    result.deviation = summary[main]["std"].get<double>();
  return result;
}

/// The names of the metrics that a result has, the main one first.
std::vector<std::string> columns_of(const std::vector<SweepResult>& results, const TaskDefinition& task) {
  std::vector<std::string> names;
  for (const SweepResult& result : results) {
    for (const std::string& name : figures_of(task.metrics, result.metrics)) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

/// The value of a swept key, as JSON.
nlohmann::json value_of(const FinetuneConfig& config, std::string key) {
  std::replace(key.begin(), key.end(), '.', '/');
  return nlohmann::json::parse(to_json(config)).at(nlohmann::json::json_pointer("/" + key));
}

}  // namespace

void sort_results(std::vector<SweepResult>& results, const TaskDefinition& task) {
  const auto value = [&](const SweepResult& result) {
    const auto found = result.metrics.find(main_figure(task, result.metrics));
    return found == result.metrics.end() ? -HUGE_VAL : found->second;
  };
  std::stable_sort(results.begin(), results.end(),
                   [&](const SweepResult& a, const SweepResult& b) { return value(a) > value(b); });
}

std::string sweep_table(const std::vector<SweepResult>& results, const TaskDefinition& task) {
  const std::vector<std::string> columns = columns_of(results, task);
  const std::string main = main_figure(task, results.front().metrics);
  size_t width = 3;
  for (const SweepResult& result : results) width = std::max(width, result.name.size());
  std::string text = fmt::format("{:<{}}", "run", width);
  const bool spread = std::any_of(results.begin(), results.end(), [](const auto& each) { return each.deviation; });
  const auto add = [&](const std::string& column, const std::string& cell) {
    text += fmt::format("  {:>{}}", cell, std::max<size_t>(12, column.size()));
  };
  const std::string std_of_main = main + " std";
  for (const std::string& column : columns) {
    add(column, column);
    if (spread && column == main) add(std_of_main, std_of_main);
  }
  for (const SweepResult& result : results) {
    text += fmt::format("\n{:<{}}", result.name, width);
    for (const std::string& column : columns) {
      const auto value = result.metrics.find(column);
      add(column, value == result.metrics.end() ? "-" : fmt::format("{:.4f}", value->second));
      if (spread && column == main) add(std_of_main, result.deviation ? fmt::format("{:.4f}", *result.deviation) : "-");
    }
  }
  return text + "\nbest: " + results.front().name;
}

std::string sweep_json(const FinetuneSweep& sweep, const std::vector<SweepResult>& results,
                       const TaskDefinition& task) {
  const std::string main = main_figure(task, results.front().metrics);
  nlohmann::ordered_json json = {
      {"metric", main}, {"best", results.front().name}, {"runs", nlohmann::ordered_json::array()}};
  for (const SweepResult& result : results) {
    const auto run = std::find_if(sweep.runs.begin(), sweep.runs.end(),
                                  [&](const SweepRun& each) { return each.name == result.name; });
    nlohmann::ordered_json line = {{"name", result.name}, {"values", nlohmann::ordered_json::object()}};
    for (const std::string& key : sweep.keys) line["values"][key] = value_of(run->config, key);
    for (const std::string& name : figures_of(task.metrics, result.metrics)) {
      const double value = result.metrics.at(name);
      line[name] = value;
      if (name == main && result.deviation) line[name] = {{"mean", value}, {"std", *result.deviation}};
    }
    json["runs"].push_back(std::move(line));
  }
  return json.dump(2) + "\n";
}

int finetune_sweep(const FinetuneSweep& sweep, int64_t seeds, bool allow_config_change) {
  expect_no_run(sweep.run_directory);
  const bool chief = distributed_environment().rank == 0;
  const TaskDefinition task = task_definition(sweep.runs.front().config.task);
  std::vector<SweepResult> results;
  for (const SweepRun& run : sweep.runs) {
    if (chief) fmt::print(stderr, "sweep: run {} of {}, {}\n", results.size() + 1, sweep.runs.size(), run.name);
    const int code =
        seeds > 0 ? finetune_seeds(run.config, seeds, allow_config_change) : finetune(run.config, allow_config_change);
    if (code != kOk) return code;
    if (chief) results.push_back(read_result(run, task));
  }
  if (!chief) return kOk;
  sort_results(results, task);
  AtomicFile file(sweep.run_directory + "/summary.json");
  file.write(sweep_json(sweep, results, task));
  file.commit();
  fmt::print(stderr, "{}\nthese figures are in {}/summary.json\n", sweep_table(results, task), sweep.run_directory);
  return kOk;
}

}  // namespace bert
