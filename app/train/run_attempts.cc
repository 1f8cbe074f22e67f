#include "app/train/run_attempts.h"

#include <ATen/Parallel.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "app/system/machine/host.h"
#include "cuda_ext/compat.h"
#include "data/io/error.h"
#include "data/io/files.h"

namespace bert {
namespace {

/// The arguments of this process, the program first. None where /proc is not mounted.
std::vector<std::string> command_line() {
  std::string bytes;
  try {
    bytes = read_file("/proc/self/cmdline");
  } catch (const InputMissing&) {
    return {};
  }
  std::vector<std::string> arguments;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find('\0', begin), bytes.size());
    arguments.push_back(bytes.substr(begin, end - begin));
    begin = end + 1;
  }
  return arguments;
}

}  // namespace

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
