// The training loop of one process.
#pragma once

#include "app/config/pretrain_config.h"

namespace bert {

/// Pre-trains as `config` says, from the newest valid checkpoint of its run directory, else from
/// config.initial_checkpoint, else from random weights. Refuses a configuration that differs from the checkpoint's in a
/// field that must stay the same, unless `allow_config_change`. Returns kOk, or kPreempted after SIGTERM, SIGINT or
/// SIGUSR1 with a checkpoint saved. Throws ConfigError, DataError, InputMissing, IoError, PeerError, c10::Error.
int pretrain(const PretrainConfig& config, bool allow_config_change);

}  // namespace bert
