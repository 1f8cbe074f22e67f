// The work of a run's steps: what their micro-batches hold, its FLOPs, and the wait for the loader.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/plan/flops.h"
#include "app/train/step/optimizer_step.h"
#include "data/loader/global_step.h"

namespace bert {

/// Every rank has one and counts its own work.
class WorkMeter {
 public:
  /// `pooler`: the model has one, and a head on it. `sources`: names, if the run mixes several.
  WorkMeter(const BertConfig& model, bool pooler, const std::vector<std::string>& sources);

  struct SourceWork {
    std::string name;
    double examples = 0, masked_tokens = 0;
  };
  /// The work of all ranks since the last reset().
  struct Work {
    double sequences = 0;
    double tokens = 0, least_tokens = 0, most_tokens = 0;  // of all ranks; of the ranks with least and most
    double flops = 0, capacity = 0;                        // capacity: tokens that the micro-batches could have held
    double most_seconds_waited = 0;                        // of a rank, for the loader
    int64_t corrupted = 0;                                 // damaged rows of this rank that were replaced
    std::vector<SourceWork> sources;                       // empty unless there are several
  };

  /// Counts a step, whose micro-batches are on the CPU.
  void add(const GlobalStep& step);
  /// Every rank must call it: `group` adds.
  [[nodiscard]] Work sum(const OptimizerStep& group) const;
  void reset();

 private:
  FlopCounter flop_counter_;
  // Of this rank.
  int64_t sequences_ = 0, tokens_ = 0, capacity_ = 0, corrupted_ = 0;
  double flops_ = 0, waited_ = 0;
  std::vector<SourceWork> sources_;
};

}  // namespace bert
