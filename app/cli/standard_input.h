// Reads all of standard input.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace bert {

/// All bytes of standard input. `check_start` gets the first 64 KiB or more, or everything, before the rest is read: it
/// may throw, so that input without an end is refused. Throws IoError if reading fails (a directory, a closed descriptor).
std::string read_standard_input(const std::function<void(std::string_view)>& check_start);

}  // namespace bert
