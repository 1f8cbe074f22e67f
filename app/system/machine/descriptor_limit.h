// The number of files and connections that this process may have open.
#pragma once

#include <cstdint>

namespace bert {

/// Raises the soft limit of this process to its hard limit (ulimit -Hn), and returns it.
uint64_t raise_descriptor_limit();

}  // namespace bert
