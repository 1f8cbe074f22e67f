// Helpers of the device's own checks: faults of some lines, tensors on devices, and processes that end.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/null_device/null_device.h"
#include "tests/support/test_program.h"
#include "tests/testing.h"

namespace bert::testing {

inline const c10::Device kFirst{c10::kCUDA, 0}, kSecond{c10::kCUDA, 1};

/// Waits for all work of both devices.
inline void wait_for_devices() {
  for (const c10::Device device : {kSecond, kFirst}) {
    const c10::cuda::CUDAGuard guard(device);
    cudaDeviceSynchronize();
  }
}
/// What a test leaves behind is no race for those after it.
struct WaitAtEnd {
  WaitAtEnd() = default;
  WaitAtEnd(const WaitAtEnd&) = delete;
  ~WaitAtEnd() { wait_for_devices(); }
};

/// The faults of some lines. Faults do not end the process meanwhile.
template <class Body>
std::vector<std::string> faults_of(const Body& body) {
  null_device::FaultCollector collector;
  body();
  return collector.take();
}

/// One fault, whose text has these parts.
inline void check_fault(const std::vector<std::string>& faults, const std::vector<std::string>& parts) {
  CHECK(faults.size() == 1);
  for (const std::string& text : faults) {
    INFO(text);
    for (const std::string& part : parts) CHECK_THAT(text, Contains(part));
  }
}
inline void check_no_fault(const std::vector<std::string>& faults) {
  for (const std::string& text : faults) UNSCOPED_INFO(text);
  CHECK(faults.empty());
}

/// "stream 3 of device 0".
inline std::string words(const c10::cuda::CUDAStream& stream) {
  const c10::cuda::CUDAGuard guard(stream.device());
  return null_device::in_words(stream.stream());
}
/// "stream 3".
inline std::string number(const c10::cuda::CUDAStream& stream) {
  return words(stream).substr(0, words(stream).find(" of"));
}

inline at::Tensor filled(int64_t count, double value, c10::Device device = kFirst) {
  return at::full({count}, value, at::TensorOptions().dtype(at::kFloat).device(device));
}
inline at::Tensor pinned(int64_t count, double value) {
  return at::empty({count}, at::TensorOptions().dtype(at::kFloat).pinned_memory(true)).fill_(value);
}
inline at::Tensor on_host(const at::Tensor& tensor) { return tensor.to(at::kCPU); }

/// The warnings of the lines, one after another.
inline std::string warning_of(const std::function<void()>& lines) {
  struct Collector : c10::WarningHandler {
    void process(const c10::Warning& warning) override { text += warning.msg(); }
    std::string text;
  } collector;
  const c10::WarningUtils::WarningHandlerGuard guard(&collector);
  lines();
  return collector.text;
}

/// How a process ended, and what it wrote on the error stream.
struct Ended {
  int signal = 0, code = 0;  // one of them
  std::string errors;
};

inline Ended wait_for_child(pid_t child, const std::string& errors) {
  int status = 0;
  waitpid(child, &status, 0);
  std::ostringstream text;
  text << std::ifstream(errors).rdbuf();
  return {.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
          .code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
          .errors = text.str()};
}

/// Runs the body in a child that has what this process has.
inline Ended run_in_fork(const std::function<void()>& body) {
  const TemporaryDirectory directory;
  const std::string errors = directory.path("errors");
  const pid_t child = fork();
  if (child == 0) {
    const rlimit no_core{.rlim_cur = 0, .rlim_max = 0};
    setrlimit(RLIMIT_CORE, &no_core);
    std::signal(SIGABRT, SIG_DFL);
    if (std::freopen(errors.c_str(), "w", stderr) == nullptr) _exit(1);
    body();
    _exit(0);
  }
  return wait_for_child(child, errors);
}

/// Runs the program with these variables. What fails in it is printed here.
inline Ended run_in_process(const TestProgram& program, const std::map<std::string, std::string>& variables) {
  const TemporaryDirectory directory;
  const std::string errors = directory.path("errors"), report = directory.path("report");
  const pid_t child = fork();
  if (child == 0) {
    if (std::freopen(errors.c_str(), "w", stderr) == nullptr) _exit(1);
    setenv(TestProgram::kVariable, program.name, 1);
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    execl("/proc/self/exe", "child", "--out", report.c_str(), nullptr);
    _exit(127);
  }
  Ended ended = wait_for_child(child, errors);
  if (ended.code == 0 && ended.signal == 0) return ended;
  std::ostringstream text;
  text << std::ifstream(report).rdbuf();
  UNSCOPED_INFO(program.name << ": " << text.str() << ended.errors);
  return ended;
}

}  // namespace bert::testing
