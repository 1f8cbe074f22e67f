// Variables of the environment that have a default.
#pragma once

#include <string>

namespace bert {

/// The variable's value, "" too; `fallback` where it is not set.
std::string variable_or(const char* name, const std::string& fallback);

/// Where temporary files belong: TMPDIR, else /tmp.
std::string temporary_directory();

}  // namespace bert
