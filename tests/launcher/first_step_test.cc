// Measures and prints the delay of the first step with several ranks, compared to one process.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>

#include "app/config/pretrain_config.h"
#include "app/system/exit_codes.h"
#include "tests/places.h"
#include "tests/support/tiny_pretraining.h"
// Last, because it includes Catch2.
#include "tests/support/launcher_testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

/// Seconds from the start of `bert pretrain` to the line of its first step. One rank runs without bertrun.
double seconds_to_first_step(const PretrainConfig& config, int ranks) {
  using Clock = std::chrono::steady_clock;
  const std::string file = config.run_directory + ".json", metrics = config.run_directory + "/metrics.jsonl";
  std::ofstream(file) << to_json(config);
  const auto start = Clock::now();
  std::vector<std::string> arguments = {"pretrain", file};
  if (ranks > 1) {
    arguments.insert(arguments.begin(), {"--standalone", "--nproc-per-node", std::to_string(ranks), BERT_EXECUTABLE});
  }
  Launcher run(
      arguments, [] { setenv("OMP_NUM_THREADS", "1", 1); }, ranks > 1 ? BERTRUN_EXECUTABLE : BERT_EXECUTABLE);
  const auto logged = [&] { return std::filesystem::exists(metrics) && std::filesystem::file_size(metrics) > 0; };
  while (!logged() && !run.ended()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  CHECK(logged());
  CHECK(run.wait() == kOk);
  return seconds;
}

}  // namespace

TEST_CASE("the first step of four ranks and that of one process", "[slow]") {
  if (!std::filesystem::exists(BERT_EXECUTABLE)) BERT_SKIP("bert is not built: it needs LibTorch");
  constexpr int kRanks = 4, kRepeats = 3;
  const TemporaryDirectory directory;
  std::vector<double> alone, together;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    PretrainConfig config = tiny(directory, "alone" + std::to_string(repeat));
    config.global_batch_size = 4 * kRanks;
    config.log_every = config.max_steps = 1;
    alone.push_back(seconds_to_first_step(config, 1));
    config.run_directory = directory.path("together" + std::to_string(repeat));
    together.push_back(seconds_to_first_step(config, kRanks));
  }
  std::ranges::sort(alone);
  std::ranges::sort(together);
  WARN("first step after " << alone[1] << " s (" << alone[0] << " to " << alone[2] << "), of " << kRanks
                           << " ranks after " << together[1] << " s (" << together[0] << " to " << together[2]
                           << "): " << together[1] - alone[1] << " s later");
}
