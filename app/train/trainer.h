// The training loop of one process.
#pragma once

#include <functional>
#include <memory>

#include "app/config/run_config.h"
#include "app/train/run_place.h"
#include "app/train/run_state.h"

namespace bert {

/// Makes the run of one rank. The ranks have met: `place` has their group.
using RunMaker = std::function<std::unique_ptr<RunState>(const RunPlace& place)>;

/// Trains as `config` says, from the newest valid checkpoint of its run directory, else from config.initial_checkpoint,
/// else from random weights: locks the run directory, selects threads and device, meets the other ranks, makes the run
/// and trains it. Refuses a configuration that differs from the checkpoint's in a field that must stay the same, unless
/// `allow_config_change`. Returns kOk, or kPreempted after SIGTERM, SIGINT, SIGUSR1 or SIGHUP with a checkpoint saved.
/// Throws ConfigError, DataError, InputMissing, IoError, PeerError, c10::Error.
int train(const RunConfig& config, const RunMaker& make_run, bool allow_config_change);

}  // namespace bert
