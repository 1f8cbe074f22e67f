// The options of `bert benchmark`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/config/device_choice.h"

namespace bert {

/// The options of all modes. A mode reads those that its --help lists.
struct BenchmarkOptions {
  std::string mode;  // step, inference or data
  std::string config, lengths, precision, compare;
  DeviceChoice device = DeviceChoice::kCudaIfThere;
  std::vector<std::string> overrides;  // a.b=value
  int64_t batch = 8, length = 128, steps = 10, warmup = 3, threads = 0;
  std::string checkpoint;                     // of inference
  bool embedding = false;                     // of inference: from texts of `input` to their vectors
  std::vector<int64_t> batches;               // of inference; empty: 8, and with `embedding` that of predict
  std::vector<int64_t> text_lengths = {128};  // of inference
  std::vector<std::string> input;
  std::string vocab, masking, dump;
  double fail_below = 0;
  bool json = false, breakdown = false;
};

}  // namespace bert
