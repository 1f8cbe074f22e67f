// A log of the examples that each rank has trained on, for checks from outside.
#pragma once

#include <cstdint>
#include <string>

#include "app/report/metrics.h"
#include "data/loader/global_step.h"

namespace bert {

/// RUN/samples-rank-00000.jsonl: a line {"step", "samples", "examples"} for every step that the rank has tried, also a
/// skipped one. "samples" are the numbers of the rank's sequences in the run, "examples" the numbers of the examples
/// that they hold. Over all files the samples of a step follow those of the step before, for any number of ranks.
class SequenceLog {
 public:
  /// Continues after `steps` tried steps and drops later lines, which a killed run has left. Rank 0 drops them also
  /// from the files of ranks that no longer exist. Throws IoError.
  SequenceLog(const std::string& run_directory, int64_t rank, int64_t world_size, int64_t steps);

  /// Writes the line of a step, whose micro-batches are on the CPU.
  void write(const GlobalStep& step);

 private:
  MetricsFile file_;
  int64_t steps_;
};

}  // namespace bert
