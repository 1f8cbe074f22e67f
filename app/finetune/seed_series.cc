#include "app/finetune/seed_series.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "app/distributed/environment.h"
#include "app/finetune/embedding_scoring.h"
#include "app/finetune/finetuning_run.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/tasks/task_scoring.h"
#include "data/io/files.h"
#include "data/tasks/task_definition.h"

namespace bert {
namespace {

struct MetricSeries {
  std::string name;
  std::vector<double> values;

  [[nodiscard]] double mean() const {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  }
  [[nodiscard]] std::optional<double> deviation() const {
    if (values.size() < 2) return std::nullopt;
    double sum = 0;
    for (const double value : values) sum += (value - mean()) * (value - mean());
    return std::sqrt(sum / static_cast<double>(values.size() - 1));
  }
};

/// The metrics that all results have, in the order of `metrics`; then their best values and those of test files.
std::vector<MetricSeries> series_of(const std::vector<SeedResult>& results, const std::vector<std::string>& metrics) {
  std::vector<MetricSeries> all;
  std::vector<std::string> names = figures_of(metrics, results.front().metrics);
  for (const char* prefix : {"best_", "test_"}) {
    std::vector<std::string> prefixed;
    for (const std::string& metric : metrics) prefixed.push_back(prefix + metric);
    const std::vector<std::string> more = figures_of(prefixed, results.front().metrics);
    names.insert(names.end(), more.begin(), more.end());
  }
  for (const std::string& name : names) {
    MetricSeries series{.name = name, .values = {}};
    for (const SeedResult& result : results) {
      if (const auto value = result.metrics.find(name); value != result.metrics.end())
        series.values.push_back(value->second);
    }
    if (series.values.size() == results.size()) all.push_back(std::move(series));
  }
  return all;
}

SeedResult read_result(const FinetuneConfig& config) {
  SeedResult result{.seed = config.seed, .metrics = {}};
  const auto summary = nlohmann::json::parse(read_file(config.run_directory + "/summary.json"));
  for (const auto& [name, value] : summary.items()) {
    if (value.is_number()) result.metrics[name] = value.get<double>();
  }
  return result;
}

/// The metrics of the runs, each where it can have them.
std::vector<std::string> metrics_of(const FinetuneConfig& config) {
  TaskDefinition task = task_definition(config.task);
  apply_settings(task, config.data.task);
  if (task.kind == TaskKind::kEmbedding) {
    for (const bool labels : {true, false}) {
      const std::vector<std::string> more = embedding_metrics(labels);
      task.metrics.insert(task.metrics.end(), more.begin(), more.end());
    }
  }
  const std::string& best = config.metric_for_best_model;
  if (!best.empty() && std::ranges::find(task.metrics, best) == task.metrics.end()) task.metrics.push_back(best);
  return task.metrics;
}

}  // namespace

std::string series_json(const std::vector<SeedResult>& results, const std::vector<std::string>& metrics) {
  nlohmann::ordered_json json = {{"seeds", nlohmann::ordered_json::array()}};
  for (const SeedResult& result : results) json["seeds"].push_back(result.seed);
  for (const MetricSeries& series : series_of(results, metrics)) {
    const std::optional<double> deviation = series.deviation();
    json[series.name] = {{"values", series.values}, {"mean", series.mean()}, {"std", nullptr}};
    if (deviation) json[series.name]["std"] = *deviation;
  }
  return json.dump(2) + "\n";
}

std::string series_table(const std::vector<SeedResult>& results, const std::vector<std::string>& metrics) {
  const std::vector<MetricSeries> all = series_of(results, metrics);
  std::string text = fmt::format("{:<12}", "seed");
  for (const MetricSeries& series : all) text += fmt::format("  {:>12}", series.name);
  const auto row = [&](const std::string& name, const auto& value_of) {
    text += fmt::format("\n{:<12}", name);
    for (const MetricSeries& series : all)
      text += fmt::format("  {:>{}}", value_of(series), std::max<size_t>(12, series.name.size()));
  };
  const auto number = [](double value) { return fmt::format("{:.4f}", value); };
  for (size_t i = 0; i < results.size(); ++i)
    row(std::to_string(results[i].seed), [&](const MetricSeries& series) { return number(series.values[i]); });
  row("mean", [&](const MetricSeries& series) { return number(series.mean()); });
  row("std", [&](const MetricSeries& series) {
    const std::optional<double> deviation = series.deviation();
    return deviation ? number(*deviation) : std::string("-");
  });
  return text;
}

void expect_no_run(const std::string& directory) {
  std::error_code unseen;
  if (!std::filesystem::exists(directory + "/checkpoints", unseen)) return;
  throw ConfigError(
      fmt::format("run_directory: {} holds a run; expected a directory for several runs; name another one", directory));
}

int finetune_seeds(const FinetuneConfig& config, int64_t seeds, bool allow_config_change) {
  expect_no_run(config.run_directory);
  std::vector<SeedResult> results;
  for (int64_t i = 0; i < seeds; ++i) {
    FinetuneConfig one = config;
    one.seed = config.seed + i;
    one.run_directory = fmt::format("{}/seed-{}", config.run_directory, one.seed);
    if (const int code = finetune(one, allow_config_change); code != kOk) return code;
    if (distributed_environment().rank == 0) results.push_back(read_result(one));
  }
  if (distributed_environment().rank != 0) return kOk;
  const std::vector<std::string> metrics = metrics_of(config);
  write_file(config.run_directory + "/summary.json", series_json(results, metrics));
  fmt::print(stderr, "{}\nthese figures are in {}/summary.json\n", series_table(results, metrics),
             config.run_directory);
  return kOk;
}

}  // namespace bert
