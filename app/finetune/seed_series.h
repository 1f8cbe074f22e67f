// The same fine-tuning with several seeds, and the mean and the spread of its metrics.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "app/config/finetune_config.h"

namespace bert {

/// Fine-tunes with the seeds config.seed, config.seed + 1 and so on, one after another, each in
/// run_directory/seed-NUMBER. A finished run is not repeated. At the end rank 0 writes run_directory/summary.json
/// (series_json()) and prints a table. Returns the code of the first run that does not end with kOk. Throws as finetune(),
/// and ConfigError if run_directory itself holds a run.
int finetune_seeds(const FinetuneConfig& config, int64_t seeds, bool allow_config_change);

/// Throws ConfigError if `directory`, which is for several runs, holds a run itself.
void expect_no_run(const std::string& directory);

/// The metrics of one run, by name.
struct SeedResult {
  int64_t seed = 0;
  std::map<std::string, double> metrics;
};

/// {"seeds": [...], "METRIC": {"values": [...], "mean": ..., "std": ...}, ...}, std with n - 1 (null for one seed). A
/// metric is one of `metrics`, also with an ending such as _mismatched, that all results have; the same with best_ and
/// test_ before it.
std::string series_json(const std::vector<SeedResult>& results, const std::vector<std::string>& metrics);

/// The same as a table for people: a row for each seed, then mean and std.
std::string series_table(const std::vector<SeedResult>& results, const std::vector<std::string>& metrics);

}  // namespace bert
