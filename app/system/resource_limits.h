// The limits that this process has, for messages.
#pragma once

#include <string>

namespace bert {

/// Sentences about the limits of address space, threads and processes that the shell, the user or the container sets, and
/// how to raise them; "" if there is none.
std::string resource_limits();

/// Starts `threads` threads at once and ends them. Throws ResourceError if the system does not give so many: the libraries
/// that need them end the process with a code of their own.
void expect_threads(int threads);

}  // namespace bert
