// Pre-training, from a configuration to the last checkpoint.
#pragma once

#include "app/config/pretrain_config.h"

namespace bert {

/// Pre-trains as `config` says, with the results and errors of train() in trainer.h.
int pretrain(const PretrainConfig& config, bool allow_config_change);

}  // namespace bert
