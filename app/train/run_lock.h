#pragma once

#include <string>

#include "app/system/errors.h"

namespace bert {

/// Another process works on the run directory. Exit code 78: the configuration names a directory that is taken.
struct RunLocked : ConfigError {
  using ConfigError::ConfigError;
};

/// Holds a run directory for this process: a lock on its file `lock`, which the kernel gives back however the process
/// ends.
class RunLock {
 public:
  /// Makes the directory when it is absent. Throws RunLocked with the holder's pid, IoError.
  explicit RunLock(const std::string& run_directory);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace bert
