// What a rank was doing when it failed, for torch's error file.
#pragma once

#include <string>

#include "app/system/phase.h"

namespace bert {

/// The phase in which this process is; before the first call Phase::kStarting. set_phase() publishes the phase's name to
/// bertrun (app/system/rank_state.h), and is a fail point (app/system/fail_point.h).
void set_phase(Phase phase);
[[nodiscard]] Phase current_phase();

/// The collective that was issued last, as a person would want to read it; "" before the first.
void set_last_collective(std::string text);
[[nodiscard]] std::string last_collective();

/// Writes the file that TORCHELASTIC_ERROR_FILE names, which a launcher reads: torch's {"message": {"message": "type:
/// message", "extraInfo": {"timestamp": seconds as a string}}} with "phase", "last_collective" and "exit_code" beside
/// it. Does nothing without the variable; a file that is there stays, as the first error is the cause. Never throws.
void write_error_file(const std::string& type, const std::string& message, int exit_code);

}  // namespace bert
