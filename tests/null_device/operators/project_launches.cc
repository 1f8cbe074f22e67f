#ifndef BERT_EMULATE  // for the emulator's launches
#define BERT_EMULATE
#endif

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "cuda_ext/kernels/launch.h"
#include "tests/kernels/cuda_emulator.h"
#include "tests/null_device/null_device.h"
#include "tests/null_device/operators/project.h"

namespace null_device {
namespace {

using bert::emulator::Launch;

/// The name of a kernel, or the types of its parameters if the program does not export it.
std::string find_name(const Launch& launch) {
  Dl_info found{};
  if (dladdr(launch.kernel, &found) != 0 && found.dli_sname != nullptr && found.dli_saddr == launch.kernel) {
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(found.dli_sname, nullptr, nullptr, &status),
                                                      std::free);
    return status == 0 ? name.get() : found.dli_sname;
  }
  const std::string signature = launch.signature;  // "... [with Parameters = {A, B}; Arguments = ..."
  const size_t begin = signature.find('{'), end = signature.find("};");
  return end == std::string::npos ? signature : "of (" + signature.substr(begin + 1, end - begin - 1) + ")";
}

/// find_name(), which searches all symbols of the program, once for each kernel.
const std::string& name_of(const Launch& launch) {
  static std::mutex mutex;
  static auto* const names = new std::unordered_map<const void*, std::string>;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [known, is_new] = names->try_emplace(launch.kernel);
  if (is_new) known->second = find_name(launch);
  return known->second;  // it stays where it is
}

void check_arguments(const Launch& launch, const std::string& name) {
  for (size_t i = 0; i + sizeof(uintptr_t) <= launch.arguments.size(); i += sizeof(uintptr_t)) {
    uintptr_t word = 0;
    std::memcpy(&word, launch.arguments.data() + i, sizeof(word));
    const std::string objection = objection_to(word);
    if (!objection.empty()) fault("kernel " + name + " on " + in_words(launch.stream) + " got " + objection);
  }
}

void enqueue_launch(Launch launch) {
  count_launch();
  Work work;
  work.name = name_of(launch);
  work.opens_memory = true;
  check_arguments(launch, work.name);
  const std::string objection = objection_to_stream(launch.stream);
  if (!objection.empty()) fault("kernel " + work.name + objection);
  work.run = [name = work.name, run = std::move(launch.run)] {
    static std::mutex one_at_a_time;
    const std::lock_guard<std::mutex> lock(one_at_a_time);
    try {
      run();
    } catch (const std::exception& error) {
      fault("kernel " + name + ": " + error.what());
    }
  };
  enqueue(launch.stream, std::move(work));
}

}  // namespace

void queue_launches() {
  // All memory is legal for the emulator: the runtime knows what is.
  bert::emulator::add_buffer(nullptr, std::numeric_limits<size_t>::max() / 2);
  bert::emulator::set_queue(enqueue_launch);
}

}  // namespace null_device
