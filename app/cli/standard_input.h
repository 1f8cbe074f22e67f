// Reads all of standard input.
#pragma once

#include <string>

namespace bert {

/// All bytes of standard input. Throws IoError if reading fails (a directory, a closed descriptor).
std::string read_standard_input();

}  // namespace bert
