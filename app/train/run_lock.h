// The lock on a run directory.
#pragma once

#include <string>

#include "app/system/errors.h"
#include "data/io/descriptor.h"

namespace bert {

/// Another process uses the run directory. Exit code 78: the configuration names a directory that is in use.
struct RunLocked : ConfigError {
  using ConfigError::ConfigError;
};

/// Reserves a run directory for this process: a lock on the file `lock` in it. The kernel releases the lock when the
/// process ends in any way.
class RunLock {
 public:
  /// Creates the directory if it is absent. Throws RunLocked with the pid of the other process, IoError.
  explicit RunLock(const std::string& run_directory);
  /// Throws IoError if the directory has been removed or moved since: its path may then be another run's.
  void check() const;

 private:
  const std::string path_;
  Descriptor file_;
};

}  // namespace bert
