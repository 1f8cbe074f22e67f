// One node's part of a job: starts the ranks that the rendezvous gives it, watches them, stops them, reports.
#pragma once

#include "app/launcher/settings/options.h"

namespace bert {

/// Runs this node's part to the job's end. Returns 0, the first failing rank's exit code (128 + n for a signal, 75 when
/// ranks were preempted), 128 + n after signal n, or 69 when nodes are missing or lost. Throws UsageError, IoError.
int run_agent(const LaunchConfig& config);

}  // namespace bert
