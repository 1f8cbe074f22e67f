// One node's part of a job: starts the ranks that the rendezvous assigns, watches them, stops them, reports failures.
#pragma once

#include "app/launcher/settings/options.h"

namespace bert {

/// Runs this node's part until the job ends. Returns 0, the exit code of the first rank that failed (128 + n if signal
/// n killed it, 75 if ranks were preempted), 128 + n after signal n, or 69 if nodes are missing or lost. Throws
/// UsageError, IoError.
int run_agent(const LaunchConfig& config);

}  // namespace bert
