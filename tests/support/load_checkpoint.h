// Checkpoints as tests read them.
#pragma once

#include <string>

#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/files.h"

namespace bert::testing {

/// Verifies every byte of a checkpoint and opens it. Throws DataError, InputMissing, IoError.
inline Checkpoint load_checkpoint(const std::string& directory) {
  verify_checkpoint(directory);
  return open_checkpoint(directory);
}

}  // namespace bert::testing
