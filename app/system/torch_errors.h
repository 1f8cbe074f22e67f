// LibTorch's exceptions as ours: without a backtrace, and with "out of memory" told apart.
#pragma once

#include <c10/util/Exception.h>

#include <functional>
#include <string>
#include <string_view>

namespace bert {

/// The first line of an error's message that is not empty; a backtrace may follow it.
std::string first_line(std::string_view message);

/// Whether LibTorch could not get memory, of this machine or of a GPU.
bool is_out_of_memory(const c10::Error& error);

/// Runs `use`, LibTorch's reading or running of a TorchScript file. What it throws, but for want of memory, goes on as
/// DataError: "<what>: <the first line of the message>".
void with_data_errors(const std::string& what, const std::function<void()>& use);

/// Runs `command`. Of a c10::Error that leaves it, OutOfMemory or a std::runtime_error goes on, with its message alone.
int with_plain_errors(const std::function<int()>& command);

}  // namespace bert
