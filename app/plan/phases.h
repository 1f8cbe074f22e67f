// The plan of a pre-training run: the time of a step, the memory of a GPU and the days of each phase.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/plan/memory.h"
#include "app/plan/step_model.h"

namespace bert {

struct PlanOptions {
  std::vector<std::string> overrides;  // a.b=value, of all phases
  std::vector<std::string> measured;   // reports of `bert benchmark step --json`, one a phase
  std::vector<int64_t> lengths;        // one a phase; none: the mean of data.train
  std::string network = "NDR", gpu = "h200";
  int64_t nodes = 1, gpus = 1;  // gpus: of each node
  double mfu = 0.45;
};

/// The mean sequence of a phase.
struct Sequence {
  double tokens = 0, masked = 0, forward_flops = 0;
  double longest = 0;  // tokens of the longest sequence
  std::string source;
};

struct Phase {
  std::string config;
  Sequence sequence;
  int64_t parameters = 0, micro_batch_size = 0, accumulation_steps = 0, global_batch_size = 0, steps = 0;
  bool measured = false;
  StepTime time;
  MemoryPlan memory;
  [[nodiscard]] double sequences_per_second() const { return static_cast<double>(global_batch_size) / time.total(); }
  [[nodiscard]] double days() const { return static_cast<double>(steps) * time.total() / 86400; }
};

/// Throws UsageError for an unknown GPU or network.
Cluster cluster_of(const PlanOptions& options);

/// The plan of the configuration at `path`, the phase with number `index`: a Phase for each of its batch sizes. Throws
/// ConfigError, UsageError, DataError.
std::vector<Phase> plan_phases(const std::string& path, const PlanOptions& options, size_t index);

nlohmann::ordered_json to_json(const Phase& phase);
/// Prints the plan for people.
void print_plan(const std::vector<Phase>& phases, const PlanOptions& options);

}  // namespace bert
