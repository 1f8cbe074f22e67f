#pragma once

#include <string>

namespace bert {

/// The name of a signal, such as "SIGTERM"; "signal 77" for a number without a name.
std::string signal_name(int number);

}  // namespace bert
