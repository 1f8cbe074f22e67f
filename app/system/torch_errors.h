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

/// True for the error of a CUDA device, other than lack of memory. A device that has failed answers every later call of the
/// process with it.
bool is_device_failure(const c10::Error& error);

/// The message without the backtrace; of a CUDA device's error the first sentence, and what to do.
std::string plain_message(const c10::Error& error);

/// Runs `use`, which reads or runs a TorchScript file with LibTorch. Converts its exceptions into DataError("<what>:
/// <the first line of the message>"), except for lack of memory and failures of a device.
void with_data_errors(const std::string& what, const std::function<void()>& use);

/// Runs `command`. Converts a c10::Error into OutOfMemory or std::runtime_error, with its plain_message().
int with_plain_errors(const std::function<int()>& command);

/// Note [Errors on LibTorch's threads]
/// A CUDA device that has failed answers every later call with its error. LibTorch's own threads (NCCL's watchdog,
/// autograd) let the exception escape, which would end the process with SIGABRT. After a call of this function, such an
/// exception ends the process with the exit code and the sentence that it would have had on the main thread. That thread
/// first gets a second to end by itself, as it meets the same error and can say more about the run.
void catch_errors_of_threads();

}  // namespace bert
