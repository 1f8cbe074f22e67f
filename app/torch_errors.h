// LibTorch's exceptions as ours: without a backtrace, and with "out of memory" told apart.
#pragma once

#include <c10/util/Exception.h>

#include <functional>

namespace bert {

/// Whether LibTorch could not get memory, of this machine or of a GPU.
bool is_out_of_memory(const c10::Error& error);

/// Runs `command`. Of a c10::Error that leaves it, OutOfMemory or a std::runtime_error goes on, with its message alone.
int with_plain_errors(const std::function<int()>& command);

}  // namespace bert
