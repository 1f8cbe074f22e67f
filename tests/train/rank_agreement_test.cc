// Ranks of one run that were started with different configurations or data.
#include "app/train/rank_agreement.h"

#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "app/config/pretrain_config.h"
#include "app/net/socket.h"
#include "app/system/exit_codes.h"
#include "app/system/stop_signals.h"
#include "tests/places.h"
#include "tests/support/rank_processes.h"
#include "tests/support/tiny_pretraining.h"
// The last include: it includes Catch2.
#include "tests/support/launcher_testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

struct Run {
  Run() {
    PretrainConfig config = tiny(directory, "run");
    config.max_steps = 2;
    std::ofstream(directory.path("run.json")) << to_json(config);
  }
  /// Starts two ranks; the second has `overrides`. Returns the exit code.
  int start(const std::string& overrides) {
    const std::string script = "[ $RANK = 0 ] || more='" + overrides + "'; exec " BERT_EXECUTABLE " pretrain " +
                               directory.path("run.json") + " $more";
    Launcher launcher(
        {"--standalone", "--nproc-per-node", "2", "sh", "-c", script}, [] {}, BERTRUN_EXECUTABLE);
    const int code = launcher.wait();
    error = launcher.err();
    return code;
  }
  TemporaryDirectory directory;
  std::string error;
};

}  // namespace

const TestProgram kComparesData("a rank that compares its data", [] {
  constexpr int64_t kTimeout = 2;  // seconds
  // Ranks may take longer to join on a busy machine.
  const ProcessGroupPtr group = init_process_group({.init_method = variable("INIT"), .timeout_seconds = 60});
  // A rank stops only after all have joined: the store may stop with it.
  const auto joined = [](int rank) { return "joined/" + std::to_string(rank); };
  group->getStore()->set(joined(get_rank(group)), std::string("1"));
  if (variable("STOPPED").find(variable("RANK")) != std::string::npos) {
    for (int rank = 0; rank < get_world_size(group); ++rank) group->getStore()->get(joined(rank));
    raise(SIGSTOP);
  }
  if (variable("SLOW") == variable("RANK")) std::this_thread::sleep_for(std::chrono::milliseconds(5000));
  if (variable("HANGS") == variable("RANK")) std::this_thread::sleep_for(std::chrono::hours(1));
  const StopSignals signals;
  if (variable("SIGNALLED") == variable("RANK")) kill(getpid(), SIGTERM);
  const auto compare = [&] {
    expect_same_data(group, {{"train", {.content_checksum = "7", .examples = 3}}}, kTimeout);
  };
  const std::string expected = variable("EXPECTED");
  if (expected.empty()) {
    CHECK_NOTHROW(compare());
  } else {
    CHECK_THROWS_WITH(compare(), Contains(expected));
  }
});

TEST_CASE("Ranks that are stopped before the comparison are named by all others", "[distributed]") {
  const TemporaryDirectory directory;
  const std::string port = std::to_string(port_of(listen_on({"127.0.0.1", 0}).get()));
  struct Case {
    std::string stopped, init, expected;
  };
  const std::vector<Case> cases = {
      {"1", "file://" + directory.path("a"), "rank 1, for whose data rank 0 waits, has not responded for 2 s"},
      {"12", "file://" + directory.path("b"), "ranks 1 and 2, for whose data rank 0 waits, have not responded for 2 s"},
      {"0", "file://" + directory.path("c"), "rank 0, for whose comparison of every rank's data rank "},
      // The store stops with rank 0.
      {"0", "tcp://127.0.0.1:" + port, "rank 0 or the launcher, which hold it, is stopped, dead, or cut off; check"}};
  for (const Case& each : cases) {
    CAPTURE(each.stopped, each.init);
    constexpr int kRanks = 4;
    std::vector<pid_t> stopped, others;
    for (int rank = 0; rank < kRanks; ++rank) {
      const bool stops = each.stopped.find(std::to_string(rank)) != std::string::npos;
      (stops ? stopped : others)
          .push_back(start_rank(kComparesData, rank, kRanks,
                                {{"INIT", each.init}, {"STOPPED", each.stopped}, {"EXPECTED", each.expected}}));
    }
    for (const pid_t pid : others) CHECK(wait_for(pid) == 0);
    for (const pid_t pid : stopped) {
      kill(pid, SIGKILL);
      CHECK(wait_for(pid) == 1000 + SIGKILL);
    }
  }
}

TEST_CASE("A rank that lives may take longer to open its data than the timeout", "[distributed]") {
  const TemporaryDirectory directory;
  for (const char* slow : {"0", "1"}) {
    CAPTURE(slow);
    CHECK(run_ranks(kComparesData, 3, {{"INIT", "file://" + directory.path(slow)}, {"SLOW", slow}}) ==
          std::vector<int>(3, 0));
  }
}

TEST_CASE("A wait for another rank ends by a signal, and some time also where that rank lives", "[distributed]") {
  const TemporaryDirectory directory;
  for (const auto& [signalled, expected] :
       {std::pair<std::string, std::string>{"0", "stopped by a signal before all ranks had compared what they have"},
        {"",
         "rank 1, for whose data rank 0 waits, did not come within 20 s: check the log\n  rank 1: phase starting"}}) {
    CAPTURE(signalled);
    std::vector<pid_t> pids;
    for (int rank = 0; rank < 2; ++rank) {
      pids.push_back(start_rank(kComparesData, rank, 2,
                                {{"INIT", "file://" + directory.path("store" + signalled)},
                                 {"SIGNALLED", signalled},
                                 {"HANGS", "1"},
                                 {"EXPECTED", expected}}));
    }
    CHECK(wait_for(pids[0]) == 0);
    kill(pids[1], SIGKILL);
    CHECK(wait_for(pids[1]) == 1000 + SIGKILL);
  }
}

TEST_CASE("Ranks with another configuration are refused, with keys and values", "[distributed]") {
  Run run;
  CHECK(run.start("seed=7 micro_batch_size=2 model.hidden_size=64 distributed.compression=fp16 num_threads=1") ==
        kBadConfiguration);
  CHECK_THAT(run.error, Contains("ranks do not have the same configuration:"));
  CHECK_THAT(run.error, Contains("rank 1 and rank 0:"));
  CHECK_THAT(run.error, Contains("/seed: 7, on rank 0 42"));
  CHECK_THAT(run.error, Contains("/micro_batch_size: 2, on rank 0 4"));
  CHECK_THAT(run.error, Contains("/model/hidden_size: 64, on rank 0 32"));
  CHECK_THAT(run.error, Contains("/distributed/compression: \"fp16\", on rank 0 \"none\""));
  CHECK_THAT(run.error, !Contains("/num_threads"));
  CHECK_FALSE(std::filesystem::exists(run.directory.path("run/checkpoints/step-00000002")));
}

TEST_CASE("Ranks with other data are refused; copies under another name are the same", "[distributed]") {
  Run run;
  write_counting_shard(run.directory.path("other.shard"), 300, 3);
  CHECK(run.start("data.train=" + run.directory.path("other.shard")) == kBadConfiguration);
  CHECK_THAT(run.error, Contains("ranks do not have the same data:"));
  CHECK_THAT(run.error, Contains("data.train: 300 examples, checksum "));
  std::filesystem::copy_file(run.directory.path("train.shard"), run.directory.path("copy.shard"));
  CHECK(run.start("num_threads=1 data.train=" + run.directory.path("copy.shard")) == kOk);
}
