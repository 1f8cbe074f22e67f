// The number of processor threads that LibTorch uses.
#pragma once

#include <cstdint>

namespace bert {

/// Largest number of processor threads that an option or a configuration may ask for.
inline constexpr int64_t kMaxThreads = 1024;

/// Sets LibTorch's number of threads. For `threads` = 0 LibTorch's own choice stays, but if OMP_NUM_THREADS is not set,
/// it is at most usable_processors(). More than four times usable_processors() are cut to that number, with a line on
/// stderr: with more threads a step may take minutes.
void use_threads(int64_t threads);

}  // namespace bert
