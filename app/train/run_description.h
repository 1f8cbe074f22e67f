// The words with which a run begins and ends, and the facts in its reports.
#pragma once

#include <cstdint>
#include <string>

#include "app/report/sink.h"
#include "app/train/run_state.h"

namespace bert {

/// Lines about device and threads, model, examples and epochs, batch, steps, and the place of the results. Training
/// goes from step `applied` to `last_step`.
std::string describe_begin(RunState& run, int64_t applied, int64_t last_step);

/// The facts for all sinks of a run that begins at step `applied`, but for the times.
RunFacts facts_of(RunState& run, int64_t applied);

/// A line with the final figures, and a line with the place of the results.
std::string describe_end(RunState& run, int64_t applied);

}  // namespace bert
