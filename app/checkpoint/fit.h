// Errors for checkpoints whose tensors do not fit this run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/checkpoint/state.h"
#include "app/config/pretrain_config.h"

namespace bert {

/// Runs `load`, which copies a checkpoint's tensors into the model and the optimizer of this run. If they do not fit,
/// throws ConfigError with the cause: the keys under `prefixes` (such as "/model/") in which the checkpoint's
/// configuration differs, and the first tensors. `what` stands in the message.
void fit_checkpoint(const std::string& what, const CheckpointState& state, const PretrainConfig& config,
                    const std::vector<std::string>& prefixes, const std::function<void()>& load);

}  // namespace bert
