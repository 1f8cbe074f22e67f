// The command line of bert evaluate pretraining, and its parts with and without LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/config/device_choice.h"

namespace bert {

/// The name of what evaluates the heads of pre-training. It stands first on the command line.
inline constexpr std::string_view kPretrainingTask = "pretraining";

struct EvaluatePretrainingOptions {
  std::vector<std::string> checkpoints;
  std::string dataset;
  DeviceChoice device = DeviceChoice::kCpu;
  std::optional<uint64_t> mask_seed;  // empty: the masks that the examples store
  int64_t max_examples = 1000;        // 0: all
  int64_t max_seq_length = 128;       // of text
  int64_t pseudo_examples = 10;
  bool trust = false, raw_weights = false;
};

/// True for `bert evaluate pretraining`.
inline bool is_pretraining_evaluation(int argc, char** argv) { return argc > 1 && argv[1] == kPretrainingTask; }

/// Parses the command line, where argv[1] is kPretrainingTask. Returns false after --help. Throws UsageError.
bool parse_evaluate_pretraining(int argc, char** argv, EvaluatePretrainingOptions& options);

/// The part without LibTorch, and the whole verb. Return an exit code.
int evaluate_pretraining_command(int argc, char** argv);
int evaluate_pretraining_torch_command(int argc, char** argv);

}  // namespace bert
