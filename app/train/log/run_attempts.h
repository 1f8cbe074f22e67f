// attempts.jsonl: the processes of a run, when each began, and how it ended.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "app/config/run_config.h"
#include "app/report/line_file.h"
#include "app/train/step/optimizer_step.h"

namespace bert {

/// The devices of the run in words, such as "cuda:0 (NVIDIA H100)".
std::string device_in_words(c10::Device device);

/// The attempts.jsonl of a run.
class RunAttempts {
 public:
  /// Appends the line of a process that begins to train at step `step`: command, machine, versions and device. Throws
  /// IoError.
  RunAttempts(const RunConfig& config, const OptimizerStep& parts, int64_t step);
  /// The line of a process that ends in an orderly way. Throws nothing: without this line the end is not known.
  void ended(int64_t step, int exit_code, const std::string& reason);

 private:
  void write(const nlohmann::ordered_json& line);

  LineFile file_;
};

}  // namespace bert
