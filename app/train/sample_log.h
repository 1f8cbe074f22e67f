// Which examples each rank has trained on, so that this can be checked from outside.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/report/metrics.h"
#include "cuda_ext/packed_batch.h"
#include "data/loader/dataloader.h"

namespace bert {

/// RUN/samples-rank-00000.jsonl: a line {"step", "samples", "examples"} for every step that the rank tried (a skipped
/// one too), with the numbers of its samples in the run and of the examples that they were. Over all files, the samples
/// of step n are (n - 1) global_batch_size .. n global_batch_size - 1, whatever the number of ranks.
class SampleLog {
 public:
  /// Goes on after `steps` tried steps: later lines, of a run that was killed, are dropped, by rank 0 also from the
  /// files of ranks that are no more. Throws IoError.
  SampleLog(const std::string& run_directory, int64_t rank, int64_t world_size, int64_t steps);

  /// One of the step's micro-batches, on the CPU.
  void add(const PackedBatch& batch, const PretrainingDataLoader& loader);
  /// Writes the line of the step.
  void end_step();

 private:
  MetricsFile file_;
  int64_t steps_;
  std::vector<int64_t> samples_, examples_;
};

}  // namespace bert
