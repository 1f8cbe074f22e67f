// The exceptions of app/. app/system/exit_codes.cc turns them, and those of data/io/error.h, into exit codes.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace bert {

/// The command line is wrong: exit code 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// One error in a configuration.
struct ConfigProblem {
  std::string where;    // "file:line:column", "command line" or "environment variable NAME"
  std::string pointer;  // JSON pointer; "" for the whole document
  std::string message;  // what was expected, what was found, what to do
};

/// An invalid configuration: exit code 78. what() has one line for each problem.
struct ConfigError : std::runtime_error {
  explicit ConfigError(const std::string& message);
  explicit ConfigError(std::vector<ConfigProblem> found);
  std::vector<ConfigProblem> problems;
};

/// Another rank or the rendezvous failed: exit code 69.
struct PeerError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The system has less memory than was asked for: exit code 71.
struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A signal asked for the end, and there is nothing to save: exit code 75.
struct Preempted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Something is not trusted: exit code 77.
struct RefusedError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace bert
