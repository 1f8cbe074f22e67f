// attempts.jsonl: the processes of a run, when each began, and how it ended.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "app/config/run_config.h"
#include "app/system/machine/host.h"
#include "app/train/step/optimizer_step.h"

namespace bert {

/// The devices of the run in words, such as "cuda:0 (NVIDIA H100)".
std::string device_in_words(c10::Device device);

/// The line of a process that begins to train at step `step`: command, machine, versions and device.
nlohmann::ordered_json attempt_begin(const RunConfig& config, const OptimizerStep& parts, int64_t step);

/// The line of a process that ends in an orderly way.
nlohmann::ordered_json attempt_end(int64_t step, int exit_code, const std::string& reason);

}  // namespace bert
