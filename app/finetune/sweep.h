// Fine-tuning with a grid of hyper-parameters, and the table of its results.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/config/finetune_config.h"
#include "data/tasks/task_definition.h"

namespace bert {

/// Fine-tunes the runs of `sweep` one after another, each in its run_directory; with `seeds` above 0 as finetune_seeds().
/// A finished run is not repeated. At the end rank 0 writes summary.json (sweep_json()) in the sweep's directory and
/// prints a table. Returns the code of the first run that does not end with kOk. Throws as finetune(), and ConfigError if
/// the sweep's directory itself holds a run.
int finetune_sweep(const FinetuneSweep& sweep, int64_t seeds, bool allow_config_change);

/// The metrics of one run, by name.
struct SweepResult {
  std::string name;                       // SweepRun::name
  std::map<std::string, double> metrics;  // with several seeds the means
  std::optional<double> deviation = {};   // of the main metric over several seeds
};

/// Best main metric first; equal ones in their order. Results without the metric are the last.
void sort_results(std::vector<SweepResult>& results, const TaskDefinition& task);

/// Sorted results as a table for people: a row for each run with the task's metrics, then the name of the best run.
std::string sweep_table(const std::vector<SweepResult>& results, const TaskDefinition& task);

/// {"metric": "accuracy", "best": NAME, "runs": [{"name": NAME, "values": {KEY: VALUE, ...}, METRIC: NUMBER, ...}]}, sorted
/// as `results`. With several seeds a metric is {"mean": ..., "std": ...} where it is the main one.
std::string sweep_json(const FinetuneSweep& sweep, const std::vector<SweepResult>& results, const TaskDefinition& task);

}  // namespace bert
