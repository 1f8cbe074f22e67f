// The command line of `bert benchmark`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/benchmark/kernels.h"

namespace bert {

/// The options of all modes. A mode reads those that its --help lists.
struct BenchmarkOptions {
  std::string mode;  // step, inference, kernels or data
  std::string config, lengths, precision, device = "auto", compare, filter;
  std::vector<std::string> overrides;  // a.b=value
  int64_t batch = 8, length = 128, steps = 10, warmup = 3, threads = 0;
  std::string checkpoint;                                    // of inference
  std::vector<int64_t> batches = {8}, text_lengths = {128};  // of inference
  int64_t tokens = 0, hidden = 0;
  std::vector<std::string> shards, input;
  std::string vocab, masking, dump;
  int64_t micro_batch_tokens = 0, ranks = 1;
  double demand = 1'000'000;  // tokens a second
  double seconds = KernelBenchmarkOptions{}.seconds, fail_below = 0;
  bool json = false, breakdown = false;
};

/// Parses the command line; argv[0] is the verb. Returns false after it has printed the text of --help. Throws
/// UsageError.
bool parse_benchmark_options(int argc, char** argv, BenchmarkOptions& options);

}  // namespace bert
