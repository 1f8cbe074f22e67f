#include "app/torch_errors.h"

#include <stdexcept>
#include <string>

#include "app/exit_codes.h"

namespace bert {

bool is_out_of_memory(const c10::Error& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  // The allocator of the CPU, the CUDA runtime and cuBLAS throw plain errors.
  const std::string message = error.what_without_backtrace();
  const auto says = [&](const char* part) { return message.find(part) != std::string::npos; };
  return says("DefaultCPUAllocator") || says("CUDA error: out of memory") || says("CUBLAS_STATUS_ALLOC_FAILED");
}

int with_plain_errors(const std::function<int()>& command) {
  try {
    return command();
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    if (is_out_of_memory(error)) {
      const size_t sentence = message.find("DefaultCPUAllocator");  // before it: a check of LibTorch's source
      throw OutOfMemory("out of memory: " + message.substr(sentence == std::string::npos ? 0 : sentence));
    }
    throw std::runtime_error(message);
  }
}

}  // namespace bert
