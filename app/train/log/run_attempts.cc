#include "app/train/log/run_attempts.h"

#include <ATen/Parallel.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
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

RunAttempts::RunAttempts(const RunConfig& config, const OptimizerStep& parts, int64_t step)
    : file_(config.run_directory + "/attempts.jsonl",
            [](std::string_view line) { return nlohmann::json::accept(line); }) {
  write({{"event", "begin"},
         {"time", seconds_since_epoch()},
         {"step", step},
         {"command", command_line()},
         {"host", machine_name()},
         {"version", BERT_VERSION},
         {"libtorch", TORCH_VERSION},
         {"device", device_in_words(parts.device())},
         {"threads", at::get_num_threads()},
         {"world_size", parts.world_size()},
         {"precision", name_of_value(config.precision)},
         {"pid", getpid()}});
}

void RunAttempts::ended(int64_t step, int exit_code, const std::string& reason) {
  try {  // also after another write has failed, which may be the reason
    write({{"event", "end"},
           {"time", seconds_since_epoch()},
           {"step", step},
           {"exit_code", exit_code},
           {"reason", reason}});
  } catch (const IoError&) {
    // The process ends with its own error.
  }
}

/// Bytes that are no UTF-8, such as those of a command line, become U+FFFD.
void RunAttempts::write(const nlohmann::ordered_json& line) {
  file_.write(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace bert
