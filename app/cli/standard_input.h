// Standard input as a whole.
#pragma once

#include <string>

namespace bert {

/// All bytes of standard input. Throws IoError when it cannot be read (a directory, a closed descriptor).
std::string read_standard_input();

}  // namespace bert
