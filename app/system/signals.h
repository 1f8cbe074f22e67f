#pragma once

#include <string>

namespace bert {

/// "SIGTERM"; "signal 77" for a number that has no name.
std::string signal_name(int number);

}  // namespace bert
