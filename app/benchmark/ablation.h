// The gain of each optimisation: a training step with all of them off, then one after another switched on and kept. The
// form is that of figure 1 of NVIDIA's first report on BERT.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "app/benchmark/step.h"

namespace bert {

struct AblationOptions {
  StepBenchmarkOptions step;  // config.precision: the precision of the second stage and all later ones
  int64_t larger_batch = 32;  // batch of the last stage
};

/// A row for every stage: name, batch, ms_median (of a step), sequences_per_second, speedup (cumulative, by sequences
/// per second), gain (of this stage alone), loss (mean over the steps). The stages take turns step by step, so that
/// other load of the machine affects all of them. Throws UsageError for a precision whose weights are not fp32, because
/// the stages share one model.
nlohmann::ordered_json run_ablation(const AblationOptions& options);

}  // namespace bert
