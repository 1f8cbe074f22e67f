// Environment variables with a default.
#pragma once

#include <string>

namespace bert {

/// The variable's value, which may be ""; `fallback` if it is not set.
std::string variable_or(const char* name, const std::string& fallback);

/// Directory for temporary files: the first of TMPDIR, TEMP, TMP, /tmp and /var/tmp that is a writable directory, else
/// /tmp. Python follows the same order. (Some schedulers set TMPDIR to a directory that only some machines have.)
std::string temporary_directory();

}  // namespace bert
