// The training loop of one process.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "app/config.h"

namespace bert {

/// "auto" is CUDA where there is a device. Throws ConfigError when "cuda" is asked for and there is none.
c10::Device select_device(const std::string& name, int64_t local_rank);

/// Pre-trains as `config` says: from the newest valid checkpoint of its run directory, else from
/// config.initial_checkpoint, else from random weights. A configuration that differs from the checkpoint's where it
/// must not is refused, unless `allow_config_change`. Returns kOk, or kPreempted after SIGTERM, SIGINT or SIGUSR1 with
/// a checkpoint saved. Throws ConfigError, DataError, InputMissing, IoError, PeerError, c10::Error.
int pretrain(const PretrainConfig& config, bool allow_config_change);

/// `bert pretrain`.
int pretrain_command(int argc, char** argv);

}  // namespace bert
