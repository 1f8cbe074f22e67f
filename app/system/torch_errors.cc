#include "app/system/torch_errors.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "app/system/error_report.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "data/io/error.h"

namespace bert {
namespace {

constexpr std::string_view kCudaError = "CUDA error: ";

std::terminate_handler& earlier_handler() {
  static std::terminate_handler handler = std::abort;
  return handler;
}

[[noreturn]] void end_with_plain_error() {
  try {
    if (std::current_exception()) throw;
  } catch (const c10::Error& error) {
    if (is_device_failure(error)) {
      const std::string message = plain_message(error);
      std::this_thread::sleep_for(std::chrono::seconds(1));
      write_error_file("InternalError", message, kInternal);
      std::fprintf(stderr, "bert: %s\n", message.c_str());
      std::fflush(stderr);
      std::_Exit(kInternal);
    }
  } catch (...) {  // a fault of the program: the earlier handler names it
  }
  earlier_handler()();
  std::abort();
}

}  // namespace

std::string first_line(std::string_view message) {
  const size_t begin = message.find_first_not_of(" \n");
  if (begin == std::string_view::npos) return "";
  return std::string(message.substr(begin, message.find('\n', begin) - begin));
}

bool is_out_of_memory(const c10::Error& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  // The allocator of the CPU, the CUDA runtime and cuBLAS throw plain c10::Errors.
  const std::string message = error.what_without_backtrace();
  const auto says = [&](const char* part) { return message.find(part) != std::string::npos; };
  return says("DefaultCPUAllocator") || says("CUDA error: out of memory") || says("CUBLAS_STATUS_ALLOC_FAILED");
}

bool is_device_failure(const c10::Error& error) {
  return !is_out_of_memory(error) &&
         std::string_view(error.what_without_backtrace()).find(kCudaError) != std::string::npos;
}

std::string plain_message(const c10::Error& error) {
  std::string message = error.what_without_backtrace();
  if (!is_device_failure(error)) return message;
  return first_line(message.substr(message.find(kCudaError))) +
         ". The process has lost the device: run the same command again, a run goes on from its newest checkpoint. "
         "CUDA_LAUNCH_BLOCKING=1 shows where the error comes from";
}

void with_data_errors(const std::string& what, const std::function<void()>& use) {
  try {
    use();
  } catch (const c10::Error& error) {
    if (is_out_of_memory(error) || is_device_failure(error)) throw;
    throw DataError(what + ": " + first_line(error.what_without_backtrace()));
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {  // from TorchScript's compiler and interpreter
    throw DataError(what + ": " + first_line(error.what()));
  }
}

int with_plain_errors(const std::function<int()>& command) {
  try {
    return command();
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    if (is_out_of_memory(error)) {
      // The text before this word names a check in LibTorch's source.
      const size_t sentence = message.find("DefaultCPUAllocator");
      throw OutOfMemory("out of memory: " + message.substr(sentence == std::string::npos ? 0 : sentence));
    }
    throw std::runtime_error(plain_message(error));
  }
}

void catch_errors_of_threads() {
  static const bool once = [] {
    earlier_handler() = std::set_terminate(end_with_plain_error);
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace bert
