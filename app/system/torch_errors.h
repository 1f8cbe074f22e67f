// Converts LibTorch's exceptions into ours: without a backtrace, and with a type of its own for lack of memory.
#pragma once

#include <c10/util/Exception.h>

#include <functional>
#include <string>
#include <string_view>

namespace bert {

/// The first non-empty line of an error's message. A backtrace may follow that line.
std::string first_line(std::string_view message);

/// True if LibTorch could not get memory on this machine or on a GPU.
bool is_out_of_memory(const c10::Error& error);

/// Runs `use`, which reads or runs a TorchScript file with LibTorch. Converts its exceptions into DataError("<what>:
/// <the first line of the message>"), except for lack of memory.
void with_data_errors(const std::string& what, const std::function<void()>& use);

/// Runs `command`. Converts a c10::Error into OutOfMemory or std::runtime_error, without the backtrace.
int with_plain_errors(const std::function<int()>& command);

}  // namespace bert
