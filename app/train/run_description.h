// The words with which a run begins and ends.
#pragma once

#include <cstdint>
#include <string>

#include "app/train/run_state.h"

namespace bert {

/// Lines about device and threads, model, examples and epochs, batch, steps, and the place of the results. Training
/// goes from step `applied` to `last_step`.
std::string describe_begin(RunState& run, int64_t applied, int64_t last_step);

/// A line with the final figures, and a line with the place of the results.
std::string describe_end(RunState& run, int64_t applied);

}  // namespace bert
