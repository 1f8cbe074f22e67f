#include "app/system/torch_errors.h"

#include <new>
#include <stdexcept>
#include <string>

#include "app/system/errors.h"
#include "data/io/error.h"

namespace bert {

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

void with_data_errors(const std::string& what, const std::function<void()>& use) {
  try {
    use();
  } catch (const c10::Error& error) {
    if (is_out_of_memory(error)) throw;
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
    throw std::runtime_error(message);
  }
}

}  // namespace bert
