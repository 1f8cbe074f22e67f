// The training loop of one process.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

#include "app/config/pretrain_config.h"
#include "app/distributed/environment.h"
#include "app/distributed/process_group.h"
#include "app/train/run_state.h"

namespace bert {

/// Pre-trains as `config` says, from the newest valid checkpoint of its run directory, else from
/// config.initial_checkpoint, else from random weights. Refuses a configuration that differs from the checkpoint's in a
/// field that must stay the same, unless `allow_config_change`. Returns kOk, or kPreempted after SIGTERM, SIGINT,
/// SIGUSR1 or SIGHUP with a checkpoint saved. Throws ConfigError, DataError, InputMissing, IoError, PeerError, c10::Error.
int pretrain(const PretrainConfig& config, bool allow_config_change);

/// Makes a run on a device. Sets `joined` as soon as the ranks have met, so that the group outlives an exception.
using RunMaker = std::function<std::unique_ptr<RunState>(const DistributedEnvironment& environment, c10::Device device,
                                                         ProcessGroupPtr& joined)>;

/// The same for any kind of run: locks the run directory of `config`, selects threads and device, makes the run and trains
/// it.
int train(const RunConfig& config, const RunMaker& make_run, bool allow_config_change);

}  // namespace bert
