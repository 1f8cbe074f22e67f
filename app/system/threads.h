// How many processor threads LibTorch uses.
#pragma once

#include <cstdint>

namespace bert {

/// Most processor threads that an option or a configuration may ask for.
inline constexpr int64_t kMaxThreads = 1024;

/// Sets LibTorch's number of threads for `threads` > 0; 0 is what LibTorch chose, but no more than usable_processors()
/// where OMP_NUM_THREADS is not set. More than four times these are cut to that, with a line on stderr: threads that
/// wait in turns make a step minutes long.
void use_threads(int64_t threads);

}  // namespace bert
