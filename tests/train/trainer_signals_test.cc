// The training loop when it is told to stop, overflows, or has to say something: signals, intervals, the log.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "app/checkpoint/checkpoint.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/train/pretrain.h"
#include "data/io/files.h"
#include "tests/support/lines.h"
#include "tests/support/load_checkpoint.h"
#include "tests/support/pretrain_process.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::load_checkpoint;
using bert::testing::metrics_of;
using bert::testing::result_of;
using bert::testing::run_in_child;
using bert::testing::start;
using bert::testing::TemporaryDirectory;
using bert::testing::tiny;

namespace {

/// True if a process or a thread blocks SIGTERM. `directory` is its directory in /proc.
bool blocks_sigterm(const std::string& directory) {
  const std::string status = read_file(directory + "/status");
  const size_t mask = status.find("SigBlk:");
  return (std::stoull(status.substr(mask + 7), nullptr, 16) >> (SIGTERM - 1) & 1) != 0;
}

}  // namespace

TEST_CASE("A run that overflows without end stops with 78 and a name", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "static");
  config.precision = Precision::kFp16;
  config.amp.init_scale = 65536.0 * 65536.0;
  config.amp.dynamic = false;
  config.amp.max_consecutive_skips = 5;
  config.log_every = config.checkpoint_every = 0;
  CHECK_THROWS_WITH(pretrain(config, false),
                    testing::Contains("step 0: 5 steps in a row were skipped, amp.max_consecutive_skips is 5. The "
                                      "first gradient with inf or NaN is that of ") &&
                        testing::Contains(".weight. Lower the learning rate") &&
                        testing::Contains("No checkpoint was written"));
  CHECK(metrics_of(config.run_directory).at(0)["skipped_steps"] == 5);
  CHECK(list_checkpoints(config.run_directory).empty());
  CHECK(run_in_child(config) == kBadConfiguration);

  PretrainConfig falling = tiny(directory, "falling");
  falling.precision = Precision::kFp16;
  falling.amp.init_scale = falling.amp.min_scale = 65536.0 * 65536.0;
  CHECK_THROWS_WITH(pretrain(falling, false), testing::Contains("below the least"));
}

TEST_CASE("Skips in a row are counted over signals and resumes", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.precision = Precision::kFp16;
  config.amp.init_scale = 65536.0 * 65536.0;  // every step overflows
  config.amp.dynamic = false;
  config.amp.max_consecutive_skips = 1'000'000;
  config.report.emplace_back("samples");
  const auto steps_tried = [&] {
    std::ifstream file(config.run_directory + "/samples-rank-00000.jsonl");
    return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  };
  int64_t skips = 0;
  for (int preemption = 0; preemption < 2; ++preemption) {
    const auto before = steps_tried();
    const pid_t pid = start(config);
    for (int i = 0; i < 4000 && steps_tried() < before + 3; ++i) usleep(5000);
    kill(pid, SIGTERM);
    REQUIRE(result_of(pid) == kPreempted);
    const CheckpointState state = load_checkpoint(checkpoint_directory(config.run_directory, 0)).state;
    CHECK(state.consecutive_skips >= skips + 3);
    CHECK(state.consecutive_skips * config.global_batch_size == state.consumed_samples);
    skips = state.consecutive_skips;
  }
  config.amp.max_consecutive_skips = skips + 2;
  CHECK_THROWS_WITH(pretrain(config, /*allow_config_change=*/true),
                    testing::Contains("step 0: " + std::to_string(skips + 2) + " steps in a row were skipped"));
  config.precision = Precision::kFp32;  // another precision: the count of skips starts again
  config.stop_at_step = 1;
  CHECK(pretrain(config, /*allow_config_change=*/true) == kOk);
}

TEST_CASE("A run whose terminal goes away saves and ends with 75; under nohup it goes on", "[unit][trainer]") {
  const TemporaryDirectory directory;
  for (const bool nohup : {false, true}) {
    CAPTURE(nohup);
    PretrainConfig config = tiny(directory, nohup ? "nohup" : "terminal");
    config.max_steps = nohup ? 400 : 1'000'000;
    config.checkpoint_every = 0;
    config.log_every = 1;
    const std::string metrics = config.run_directory + "/metrics.jsonl";
    const pid_t pid = start(config, "", 1, [&] { signal(SIGHUP, nohup ? SIG_IGN : SIG_DFL); });
    for (int i = 0; i < 4000 && (!std::filesystem::exists(metrics) || std::filesystem::file_size(metrics) == 0); ++i)
      usleep(5000);
    kill(pid, SIGHUP);
    CHECK(result_of(pid) == (nohup ? kOk : kPreempted));
    const auto checkpoints = list_checkpoints(config.run_directory);
    REQUIRE(checkpoints.size() == 1);
    CHECK(nohup == (checkpoints[0].step == 400));
    verify_checkpoint(checkpoints[0].directory);
  }
}

TEST_CASE("A run saves a checkpoint after checkpoint_every_minutes, on all ranks at one step", "[unit][trainer]") {
  const TemporaryDirectory directory;
  for (const int ranks : {1, 2}) {
    CAPTURE(ranks);
    PretrainConfig config = tiny(directory, "ranks" + std::to_string(ranks));
    config.max_steps = 1'000'000;
    config.checkpoint_every = 0;
    config.checkpoint_every_minutes = 0.005;  // 0.3 s
    config.log_every = 1000;
    config.keep_checkpoints = 100;
    config.device = DeviceChoice::kCpu;
    const pid_t pid = start(config, "", ranks);
    for (int i = 0; i < 6000 && list_checkpoints(config.run_directory).size() < 3; ++i) usleep(5000);
    kill(pid, SIGTERM);
    const int result = result_of(pid);
    CHECK(result == kPreempted);
    const auto checkpoints = list_checkpoints(config.run_directory);
    CHECK(checkpoints.size() >= 3);
    for (const CheckpointEntry& entry : checkpoints) verify_checkpoint(entry.directory);
    // Each checkpoint ends an interval of the log, so that no step is counted for neither or both of two starts.
    std::set<int64_t> intervals;
    for (const auto& object : metrics_of(config.run_directory)) intervals.insert(object["step"].get<int64_t>());
    for (const CheckpointEntry& entry : checkpoints) CHECK(intervals.contains(entry.step));
  }
}

TEST_CASE("A run whose steps outlast checkpoint_every_minutes saves after each of them", "[unit][trainer]") {
  const TemporaryDirectory directory;
  for (const int ranks : {1, 2}) {
    CAPTURE(ranks);
    PretrainConfig config = tiny(directory, "ranks" + std::to_string(ranks));
    config.max_steps = 6;
    config.checkpoint_every = 0;
    config.checkpoint_every_minutes = 1e-9;
    config.log_every = 1000;
    config.keep_checkpoints = 100;
    config.device = DeviceChoice::kCpu;
    REQUIRE(result_of(start(config, "", ranks)) == kOk);
    CHECK(list_checkpoints(config.run_directory).size() == 6);
  }
}

TEST_CASE("A run says where it is, and run.log keeps it", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.device = DeviceChoice::kCpu;
  config.stop_at_step = 5;
  const int64_t begin = time(nullptr);
  REQUIRE(run_in_child(config) == kOk);
  const std::string first = read_file(config.run_directory + "/run.log");
  for (const char* words : {"device    cpu, ", " thread", "model     ", " million parameters", "data      ", " example",
                            " epochs planned", "batch     ", " = micro-batch ", " x accumulation ",
                            "steps     0 to 5 of 12, ", "finished step 5", "weight decay 0.01", "embeddings"}) {
    CHECK_THAT(first, testing::Contains(words));
  }
  config.stop_at_step = 0;
  REQUIRE(run_in_child(config) == kOk);
  const std::string both = read_file(config.run_directory + "/run.log");
  CHECK(both.starts_with(first));
  CHECK_THAT(both.substr(first.size()),
             testing::Contains("continuing from ") && testing::Contains("steps     5 to 12"));
  double before = 0;
  for (const auto& object : metrics_of(config.run_directory)) {
    CHECK(object["time"].get<double>() >= static_cast<double>(begin));
    CHECK(object["time"].get<double>() >= before);
    before = object["time"];
    CHECK(object["elapsed_seconds"].get<double>() < 600);
  }
  CHECK(before > 0);
}

TEST_CASE("A run whose console nobody reads goes on, and ends as it would", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.log_every = 1;
  int console[2];
  REQUIRE(pipe2(console, O_CLOEXEC) == 0);
  const pid_t pid = start(config, "", 1, [&] {
    signal(SIGPIPE, SIG_DFL);
    dup2(console[1], STDOUT_FILENO);
    dup2(console[1], STDERR_FILENO);
  });
  close(console[1]);
  char letter = 0;
  CHECK(read(console[0], &letter, 1) == 1);
  close(console[0]);
  CHECK(result_of(pid) == kOk);
  const std::string metrics = read_file(config.run_directory + "/metrics.jsonl");
  CHECK(std::ranges::count(metrics, '\n') == 12);
  CHECK(list_checkpoints(config.run_directory).back().step == 12);
  CHECK(std::filesystem::exists(config.run_directory + "/summary.json"));
}

TEST_CASE("A signal saves a checkpoint and ends with 75; the run then goes on to the same bytes", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig whole = tiny(directory, "whole"), stopped = tiny(directory, "stopped");
  for (PretrainConfig* config : {&whole, &stopped}) {
    config->max_steps = 600;
    config->checkpoint_every = 0;
    config->log_every = 10;
  }
  REQUIRE(run_in_child(whole) == kOk);
  const std::string metrics = stopped.run_directory + "/metrics.jsonl";
  const auto logged = [&] { return std::filesystem::exists(metrics) ? std::filesystem::file_size(metrics) : 0; };
  int64_t step = 0;
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    CAPTURE(signal);
    const auto before = logged();
    const pid_t pid = start(stopped);
    for (int i = 0; i < 2000 && logged() <= before; ++i) usleep(5000);
    std::vector<std::string> listeners;
    for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
      if (!blocks_sigterm(task.path())) listeners.push_back(task.path().filename());
    }
    CHECK((listeners.size() == 1 && listeners.front() != std::to_string(pid)));  // Note [Who takes a signal]
    kill(pid, signal);
    REQUIRE(result_of(pid) == kPreempted);
    const auto checkpoints = list_checkpoints(stopped.run_directory);
    REQUIRE(!checkpoints.empty());
    CHECK(checkpoints.back().step > step);
    step = checkpoints.back().step;
  }
  CHECK(step < 600);
  REQUIRE(run_in_child(stopped) == kOk);
  const std::string last = "/checkpoints/step-00000600/model.safetensors";
  CHECK(read_file(whole.run_directory + last) == read_file(stopped.run_directory + last));
}

TEST_CASE("An evaluation that is due in a checkpoint is made when the run goes on", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.evaluate_every = 100;  // and at the end
  config.stop_at_step = 8;
  REQUIRE(pretrain(config, false) == kOk);
  const std::string at_stop = checkpoint_directory(config.run_directory, 8);
  const auto evaluations = [&](int64_t step) {
    int64_t count = 0;
    for (const auto& line : metrics_of(config.run_directory))
      count += line.contains("evaluation") && line["step"] == step;
    return count;
  };
  CHECK(evaluations(8) == 1);
  Checkpoint checkpoint = load_checkpoint(at_stop);
  CHECK(checkpoint.state.evaluation_due == 0);
  checkpoint.state.evaluation_due = 1;
  save_checkpoint(config.run_directory, checkpoint, 3);
  config.stop_at_step = 0;
  REQUIRE(pretrain(config, false) == kOk);
  CHECK(evaluations(8) == 2);
  CHECK(load_checkpoint(at_stop).state.evaluation_due == 0);
}

TEST_CASE("A signal that arrives before LibTorch is loaded ends with 75", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.max_steps = 600;
  const pid_t pid = start(config);
  for (int i = 0; i < 20000 && !blocks_sigterm("/proc/" + std::to_string(pid)); ++i) usleep(500);
  kill(pid, SIGTERM);
  // Signals as often as other programs may forward them, for less than the two seconds that count as one wish, also
  // while the process ends.
  int status = 0;
  for (int i = 0; waitpid(pid, &status, WNOHANG) == 0; ++i) {
    usleep(5000);
    if (i < 200) kill(pid, SIGTERM);
  }
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == kPreempted));
}
