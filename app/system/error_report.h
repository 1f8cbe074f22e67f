// The current phase and the last collective of this process, and the error file that launchers read.
#pragma once

#include <string>

#include "app/system/phase.h"

namespace bert {

/// The current phase of this process; Phase::kStarting before the first call. set_phase() publishes the name of the
/// phase to bertrun (app/system/rank_state.h) and is a fail point (app/system/fail_point.h).
void set_phase(Phase phase);
[[nodiscard]] Phase current_phase();

/// The last collective that this process issued, as text for people; "" before the first.
void set_last_collective(std::string text);
[[nodiscard]] std::string last_collective();

/// Writes the error file that TORCHELASTIC_ERROR_FILE names, in torch's format {"message": {"message": "type: message",
/// "extraInfo": {"timestamp": seconds as a string}}} with the additional keys "phase", "last_collective" and
/// "exit_code". Does nothing without the variable, and if the file exists: the first error is the cause. Never throws.
void write_error_file(const std::string& type, const std::string& message, int exit_code);

}  // namespace bert
