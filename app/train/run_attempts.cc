#include "app/train/run_attempts.h"

#include <ATen/Parallel.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "cuda_ext/compat.h"
#include "data/io/files.h"

namespace bert {
namespace {

/// The arguments of this process, the program first.
std::vector<std::string> command_line() {
  const std::string bytes = read_file("/proc/self/cmdline");
  std::vector<std::string> arguments;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find('\0', begin), bytes.size());
    arguments.push_back(bytes.substr(begin, end - begin));
    begin = end + 1;
  }
  return arguments;
}

}  // namespace

double seconds_since_epoch() {
  using std::chrono::milliseconds;
  return static_cast<double>(
             std::chrono::duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count()) /
         1000;
}

std::string machine_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

std::string device_in_words(c10::Device device) {
  const std::string name = compat::device_name(device);
  return device.str() + (name.empty() ? "" : " (" + name + ")");
}

nlohmann::ordered_json attempt_begin(const RunConfig& config, const OptimizerStep& parts, int64_t step) {
  return {{"event", "begin"},
          {"time", seconds_since_epoch()},
          {"step", step},
          {"command", command_line()},
          {"host", machine_name()},
          {"version", BERT_VERSION},
          {"libtorch", TORCH_VERSION},
          {"device", device_in_words(parts.device())},
          {"threads", at::get_num_threads()},
          {"world_size", parts.world_size()},
          {"precision", config.precision},
          {"pid", getpid()}};
}

nlohmann::ordered_json attempt_end(int64_t step, int exit_code, const std::string& reason) {
  return {
      {"event", "end"}, {"time", seconds_since_epoch()}, {"step", step}, {"exit_code", exit_code}, {"reason", reason}};
}

}  // namespace bert
