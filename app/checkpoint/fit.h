// Checkpoints whose tensors are not those of this run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/checkpoint/state.h"
#include "app/config/pretrain_config.h"

namespace bert {

/// Runs `load`, which puts a checkpoint's tensors in the place of this run's. When they do not fit it throws
/// ConfigError with the cause: the keys under `prefixes` ("/model/") in which the checkpoint's configuration differs,
/// and the first tensors. `what` stands in the message.
void fit_checkpoint(const std::string& what, const CheckpointState& state, const PretrainConfig& config,
                    const std::vector<std::string>& prefixes, const std::function<void()>& load);

}  // namespace bert
