// What the system says when it cannot read or write, for people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace bert {

/// Throws IoError for the errno value `error` of a failed `action` on `path`: "PATH: cannot write: ...". For a full
/// disk it says how many bytes are free, and that `needed` more were to be written.
[[noreturn]] void throw_io_error(const std::string& path, const char* action, int error, size_t needed = 0);

/// Throws IoError when the disk that `path` is to be on has less than `bytes` free; `what` needs them: "an export".
void check_free_space(const std::string& path, int64_t bytes, const char* what);

}  // namespace bert
