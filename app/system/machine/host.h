// This machine's name and its clock.
#pragma once

#include <string>

namespace bert {

/// Seconds since 1970, exact to a millisecond.
double seconds_since_epoch();

/// This machine's own name; "localhost" if the kernel does not tell.
std::string machine_name();

}  // namespace bert
