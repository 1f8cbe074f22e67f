// Checkpoints as tests read them.
#pragma once

#include <string>

#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/files.h"
#include "app/config/pretrain_config.h"

namespace bert::testing {

/// Verifies every byte of a checkpoint and opens it. Throws DataError, InputMissing, IoError.
inline Checkpoint load_checkpoint(const std::string& directory) {
  verify_checkpoint(directory);
  return open_checkpoint(directory);
}

/// The checkpoint at the end of a run.
inline std::string last_checkpoint(const PretrainConfig& config) {
  return checkpoint_directory(config.run_directory, config.max_steps);
}

}  // namespace bert::testing
