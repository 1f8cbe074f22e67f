// The system's read and write errors as messages for people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace bert {

/// Free bytes and files of a disk. Empty where the file system does not report them or has no limit.
struct FreeSpace {
  std::optional<uint64_t> bytes, files;
};

/// The message for a full disk (error ENOSPC) or quota (EDQUOT), when `needed` more bytes, or a file, were to be
/// written.
std::string no_room(int error, const FreeSpace& free, uint64_t needed);

/// Throws IoError for the errno value `error` of a failed `action` on `path`: "PATH: cannot write: ...". On a full disk
/// the message gives the free bytes and the `needed` ones, or says that the disk has no room for another file. If `path` could not be
/// created because its directory is absent, the message names the directory.
[[noreturn]] void throw_io_error(const std::string& path, const char* action, int error, size_t needed = 0);

/// Throws IoError if the disk of `path` has less than `bytes` free, or no room for another file. `what` names the thing
/// to be written in the message, such as "an export".
void check_free_space(const std::string& path, int64_t bytes, const char* what);

}  // namespace bert
