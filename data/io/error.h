// Errors of data and files. app/system/exit_codes.cc turns them into exit codes in one place.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace bert {

/// Bad content: exit code 65. `where` is a file, with the byte or line when known.
struct DataError : std::runtime_error {
  explicit DataError(const std::string& message) : std::runtime_error(message) {}
  DataError(const std::string& file, int64_t offset, const std::string& message)
      : std::runtime_error(file + ": byte " + std::to_string(offset) + ": " + message) {}
};

/// An input file is missing: exit code 66.
struct InputMissing : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The system failed to read or write, for example on a full disk: exit code 74.
struct IoError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A limit of the system is reached, of memory, address space, threads or processes: exit code 71, whose message gets the
/// limits that hold (app/system/resource_limits.h).
struct ResourceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A server cannot be reached, or does not answer as it should: exit code 69.
struct NetworkError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace bert
