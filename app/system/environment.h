// Variables of the environment that have a default.
#pragma once

#include <string>

namespace bert {

/// The variable's value, "" too; `fallback` where it is not set.
std::string variable_or(const char* name, const std::string& fallback);

/// Where temporary files belong: the first of TMPDIR, TEMP, TMP, /tmp and /var/tmp that is a directory to write to, as
/// Python has it; schedulers set TMPDIR to what is there on some machines only. Where none is, /tmp.
std::string temporary_directory();

}  // namespace bert
