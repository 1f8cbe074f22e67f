// What the system says when it cannot read or write, for people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace bert {

/// What may still be written to a disk; none where it does not say, or has no limit.
struct FreeSpace {
  std::optional<uint64_t> bytes, files;
};

/// What a failed write says of a disk (error ENOSPC) or a quota (EDQUOT) that has no room: for `needed` bytes more, or
/// for a file.
std::string no_room(int error, const FreeSpace& free, uint64_t needed);

/// Throws IoError for the errno value `error` of a failed `action` on `path`: "PATH: cannot write: ...". For a full
/// disk it says how many bytes are free, and that `needed` more were to be written, or that it has no room for a file.
[[noreturn]] void throw_io_error(const std::string& path, const char* action, int error, size_t needed = 0);

/// Throws IoError when the disk that `path` is to be on has less than `bytes` free, or no room for a file; `what` needs
/// them: "an export".
void check_free_space(const std::string& path, int64_t bytes, const char* what);

}  // namespace bert
