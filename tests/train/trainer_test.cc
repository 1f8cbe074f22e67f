// The training loop with a tiny model and generated text: the files of a run, and stops at any point.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <thread>

#include "app/checkpoint/checkpoint.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/train/pretrain.h"
#include "app/train/step/training_step.h"
#include "data/formats/shard.h"
#include "data/io/files.h"
#include "tests/support/lines.h"
#include "tests/support/load_checkpoint.h"
#include "tests/support/mismatch.h"
#include "tests/support/pretrain_process.h"
#include "tests/support/rank_processes.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Approx;
using bert::testing::json_lines;
using bert::testing::load_checkpoint;
using bert::testing::metrics_of;
using bert::testing::mismatch;
using bert::testing::result_of;
using bert::testing::run_in_child;
using bert::testing::start;
using bert::testing::TemporaryDirectory;
using bert::testing::tiny;

namespace {

std::string file_of(const PretrainConfig& config, int64_t step, const std::string& name) {
  return read_file(checkpoint_directory(config.run_directory, step) + "/" + name);
}

/// True if a process or a thread blocks SIGTERM. `directory` is its directory in /proc.
bool blocks_sigterm(const std::string& directory) {
  const std::string status = read_file(directory + "/status");
  const size_t mask = status.find("SigBlk:");
  return (std::stoull(status.substr(mask + 7), nullptr, 16) >> (SIGTERM - 1) & 1) != 0;
}

}  // namespace

TEST_CASE("A run learns, evaluates and says so in its files", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.max_steps = 1000;
  config.checkpoint_every = 0;
  config.evaluate_every = 500;
  config.log_every = 10;
  config.optimizer.lr = 4e-3;
  config.model.hidden_dropout_prob = config.model.attention_probs_dropout_prob = 0;
  config.model.initializer_range = 0.1;
  REQUIRE(pretrain(config, false) == kOk);
  const auto summary = nlohmann::json::parse(read_file(config.run_directory + "/summary.json"));
  CHECK(summary["steps"] == 1000);
  // A masked token follows from its neighbours. Word frequency alone gives a loss of about ln 50.
  CHECK(summary["unigram_entropy"].get<double>() > 3.0);
  CHECK(summary["mlm_loss_untrained"].get<double>() > 3.5);
  CHECK(summary["mlm_loss"].get<double>() < summary["unigram_entropy"].get<double>() - 0.5);
  CHECK(list_checkpoints(config.run_directory).size() == 1);

  int64_t training = 0, evaluations = 0;
  for (const auto& object : metrics_of(config.run_directory)) {
    if (object.contains("evaluation")) {
      ++evaluations;
      continue;
    }
    ++training;
    for (const char* key : {"step", "loss", "mlm_loss", "nsp_loss", "learning_rate", "grad_norm", "loss_scale",
                            "sequences_per_second", "tokens_per_second", "mfu"}) {
      CHECK(object.contains(key));
    }
  }
  CHECK(training == 100);
  CHECK(evaluations == 3);                // before the first step, in the middle and at the end
  CHECK(pretrain(config, false) == kOk);  // a finished run does nothing
}

TEST_CASE("A run that is killed at any point ends in the same bytes", "[unit][trainer]") {
  const TemporaryDirectory directory;
  const PretrainConfig whole = tiny(directory, "whole");
  REQUIRE(run_in_child(whole) == kOk);
  const std::vector<std::string> points = {"train.step:3",      "checkpoint.write:2",   "checkpoint.fsync:3",
                                           "checkpoint.rename", "checkpoint.renamed:2", "train.step:2",
                                           "checkpoint.latest"};
  const PretrainConfig killed = tiny(directory, "killed");
  for (const std::string& point : points) {
    CAPTURE(point);
    CHECK(run_in_child(killed, point) == 1000 + SIGKILL);
  }
  REQUIRE(run_in_child(killed) == kOk);
  CHECK(file_of(whole, 12, "model.safetensors") == file_of(killed, 12, "model.safetensors"));
  CHECK(file_of(whole, 12, "optimizer.safetensors") == file_of(killed, 12, "optimizer.safetensors"));
}

TEST_CASE("A run that is killed at its end is finished by the next call", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  const auto summary = [&] { return nlohmann::json::parse(read_file(config.run_directory + "/summary.json")); };
  const auto latest = [&] { return std::filesystem::read_symlink(config.run_directory + "/latest").string(); };
  config.stop_at_step = 8;
  REQUIRE(run_in_child(config) == kOk);
  CHECK(summary()["steps"] == 8);
  CHECK(summary()["sequences_per_second"].get<double>() > 0);
  config.stop_at_step = 0;
  REQUIRE(run_in_child(config, "checkpoint.latest") ==
          1000 + SIGKILL);  // the checkpoint of step 12 exists, but latest does not point to it
  CHECK(latest() == "checkpoints/step-00000008");
  CHECK(pretrain(config, false) == kOk);
  CHECK(latest() == "checkpoints/step-00000012");
  CHECK(summary()["steps"] == 12);
  CHECK_FALSE(summary().contains("sequences_per_second"));  // the process has trained nothing

  std::ofstream(config.run_directory + "/summary.json") << "{\"steps\": 12, \"mine\": true}";
  CHECK(pretrain(config, false) == kOk);
  CHECK(summary().contains("mine"));  // the summary of this step stays
  std::ofstream(config.run_directory + "/summary.json") << "{\"steps\":";
  CHECK(pretrain(config, false) == kOk);
  CHECK(summary()["steps"] == 12);
}

TEST_CASE("A run that is killed before its first checkpoint evaluates the untrained model anew, and says so once",
          "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.evaluate_every = 4;
  config.stop_at_step = 4;
  REQUIRE(run_in_child(config, "train.step:2") == 1000 + SIGKILL);
  REQUIRE(run_in_child(config) == kOk);
  std::vector<int64_t> evaluations;
  for (const auto& object : metrics_of(config.run_directory)) {
    if (object.contains("evaluation")) evaluations.push_back(object["step"]);
  }
  CHECK(evaluations == std::vector<int64_t>{0, 4});
}

TEST_CASE("A run that is killed at 20 random moments ends in the same bytes", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig whole = tiny(directory, "whole"), killed = tiny(directory, "killed");
  for (PretrainConfig* config : {&whole, &killed}) {
    config->max_steps = 400;
    config->checkpoint_every = 4;
    config->log_every = 1;
  }
  REQUIRE(run_in_child(whole) == kOk);
  const std::string metrics = killed.run_directory + "/metrics.jsonl";
  const auto logged = [&]() -> int64_t {
    std::error_code absent;
    const auto bytes = std::filesystem::file_size(metrics, absent);
    return absent ? 0 : static_cast<int64_t>(bytes);
  };
  std::mt19937 random(20);
  for (int kill_number = 0; kill_number < 20; ++kill_number) {
    const int64_t lines = random() % 5, microseconds = random() % 10000;
    CAPTURE(kill_number, lines, microseconds);
    constexpr int64_t kLineBytes = 200;  // approximately
    const int64_t before = logged();
    const pid_t pid = start(killed);
    // Every fourth process is killed during its start, too.
    const int64_t most_polls = kill_number % 4 == 0 ? microseconds / 50 : 4000;
    for (int64_t i = 0; i < most_polls && logged() <= before + lines * kLineBytes; ++i) usleep(2500);
    usleep(static_cast<useconds_t>(microseconds));
    kill(pid, SIGKILL);
    REQUIRE(result_of(pid) == 1000 + SIGKILL);  // killed before its end: each of the 20 kills meets a running process
  }
  REQUIRE(run_in_child(killed) == kOk);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    CHECK(file_of(whole, 400, file) == file_of(killed, 400, file));
  }
}

TEST_CASE("A run in fp16, in its weights too or in tf32 that is killed ends in the same bytes, loss scale included",
          "[unit][trainer]") {
  for (const std::string precision : {"fp16", "fp16-weights", "tf32"}) {
    CAPTURE(precision);
    const bool scaled = precision != "tf32";
    const TemporaryDirectory directory;
    PretrainConfig whole = tiny(directory, "whole"), killed = tiny(directory, "killed");
    for (PretrainConfig* config : {&whole, &killed}) {
      config->precision = value_named<Precision>(precision).value();
      config->amp.init_scale = 65536.0 * 65536.0;  // overflows at first: the scale falls
      config->optimizer.ema_decay = 0.9;
      config->log_every = 1;
    }
    REQUIRE(run_in_child(whole) == kOk);
    for (const char* point : {scaled ? "train.step:20" : "train.step:6", "train.step:3"}) {
      CHECK(run_in_child(killed, point) == 1000 + SIGKILL);
    }
    REQUIRE(run_in_child(killed) == kOk);
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      CHECK(file_of(whole, 12, file) == file_of(killed, 12, file));
    }
    for (const int64_t step : {4, 8, 12}) {
      const CheckpointState a = load_checkpoint(checkpoint_directory(whole.run_directory, step)).state,
                            b = load_checkpoint(checkpoint_directory(killed.run_directory, step)).state;
      CHECK(a.loss_scale == b.loss_scale);
      CHECK(a.growth_tracker == b.growth_tracker);
      CHECK(a.consumed_samples == b.consumed_samples);
    }
    std::set<double> scales;
    int64_t skipped = 0;
    for (const auto& object : metrics_of(whole.run_directory)) {
      scales.insert(object["loss_scale"].get<double>());
      skipped += object["skipped_steps"].get<int64_t>();
    }
    CHECK((skipped > 0) == scaled);
    CHECK(*scales.rbegin() < whole.amp.init_scale);
  }
}

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
    config.device = "cpu";
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
    config.device = "cpu";
    REQUIRE(result_of(start(config, "", ranks)) == kOk);
    CHECK(list_checkpoints(config.run_directory).size() == 6);
  }
}

TEST_CASE("A run says where it is, and run.log keeps it", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.device = "cpu";
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

TEST_CASE("A run that goes on in fp16 starts with the configured loss scale", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.stop_at_step = 2;
  REQUIRE(pretrain(config, false) == kOk);
  config.stop_at_step = 4;
  config.precision = Precision::kFp16;
  config.amp.init_scale = 1024.0;
  REQUIRE(pretrain(config, /*allow_config_change=*/true) == kOk);
  CHECK(load_checkpoint(checkpoint_directory(config.run_directory, 4)).state.loss_scale == 1024.0);
}

TEST_CASE("micro_batch_size may change on resume, the seed may not", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.stop_at_step = 4;
  REQUIRE(pretrain(config, false) == kOk);
  config.stop_at_step = 6;
  config.micro_batch_size = 8;
  CHECK(pretrain(config, false) == kOk);
  config.stop_at_step = 8;
  config.seed = 7;
  CHECK_THROWS_AS(pretrain(config, false), ConfigError);
  CHECK_THROWS_AS(pretrain(config, true), ConfigError);
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
  CHECK(file_of(whole, 600, "model.safetensors") == file_of(stopped, 600, "model.safetensors"));
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

TEST_CASE("A run that starts from another's checkpoint has its weights, and its moments when asked",
          "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig first = tiny(directory, "phase1");
  first.precision = Precision::kFp16;
  first.amp.init_scale = 1024.0;
  first.amp.growth_interval = 4;
  REQUIRE(pretrain(first, false) == kOk);
  const Checkpoint before = load_checkpoint(checkpoint_directory(first.run_directory, 12));
  CHECK(before.state.loss_scale == 8192.0);
  std::vector<Checkpoint> after;  // without and with the moments of phase 1
  for (const bool moments : {false, true}) {
    PretrainConfig second = tiny(directory, moments ? "with" : "without");
    second.precision = Precision::kFp16;
    second.amp.init_scale = 256.0;
    second.initial_checkpoint = first.run_directory;
    second.initial_optimizer_state = moments;
    second.optimizer.lr = 1e-9;  // so small that the weights stay comparable
    second.log_every = 1;
    second.stop_at_step = 1;
    REQUIRE(pretrain(second, false) == kOk);
    after.push_back(load_checkpoint(checkpoint_directory(second.run_directory, 1)));
    CHECK(after.back().state.loss_scale == 256.0);
    CHECK(after.back().state.growth_tracker == 1);
    CHECK(after.back().optimizer["step"].item<int64_t>() == 1);
    const auto line = nlohmann::json::parse(read_file(second.run_directory + "/metrics.jsonl"));
    const double rate = make_schedule(second.schedule, second.optimizer.lr, second.max_steps)(0);
    CHECK(line["learning_rate"].get<double>() == Approx(rate).epsilon(1e-6));
    CHECK(line["skipped_steps"] == 0);
  }
  const double beta1 = first.optimizer.beta1, beta2 = first.optimizer.beta2;
  for (const auto& item : before.model) {
    const std::string& name = item.key();
    CAPTURE(name);
    for (const Checkpoint& checkpoint : after) {
      CHECK(mismatch(item.value(), checkpoint.model[name], {1e-7, 0.0}) == "");
    }
    // The first step has the same gradient g. From moments of zero m = (1 - beta1) g and v = (1 - beta2) g^2; otherwise
    // beta m and beta v are added.
    const torch::Tensor g = after[0].optimizer["exp_avg." + name] / (1.0 - beta1);
    CHECK(mismatch(after[0].optimizer["exp_avg_sq." + name], (1.0 - beta2) * g.square(), {1e-30, 1e-5}) == "");
    for (const auto& [moment, beta] : {std::pair{"exp_avg.", beta1}, {"exp_avg_sq.", beta2}}) {
      const torch::Tensor want = after[0].optimizer[moment + name] + beta * before.optimizer[moment + name];
      CHECK(mismatch(after[1].optimizer[moment + name], want, {1e-9, 1e-5}) == "");
    }
  }
  const std::string name = "exp_avg.bert.encoder.layer.1.output.dense.weight";
  CHECK(before.optimizer[name].norm().item<float>() > 0.0F);
}

TEST_CASE("A run that starts from another's damaged directory takes its newest valid checkpoint",
          "[trainer][distributed]") {
  const TemporaryDirectory directory;
  PretrainConfig first = tiny(directory, "phase1");
  REQUIRE(pretrain(first, false) == kOk);
  std::filesystem::remove(first.run_directory + "/latest");
  std::filesystem::resize_file(checkpoint_directory(first.run_directory, 12) + "/model.safetensors", 10);
  const Checkpoint eighth = load_checkpoint(checkpoint_directory(first.run_directory, 8));
  const std::string name = "bert.encoder.layer.1.output.dense.weight";
  for (const int ranks : {1, 2}) {
    CAPTURE(ranks);
    PretrainConfig second = tiny(directory, "phase2-" + std::to_string(ranks));
    second.initial_checkpoint = first.run_directory;
    second.optimizer.lr = 1e-9;  // so small that the weights stay comparable
    second.stop_at_step = 1;
    const std::string said = directory.path("said");
    const pid_t pid =
        start(second, "", ranks, [&] { dup2(open(said.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO); });
    REQUIRE(result_of(pid) == kOk);
    CHECK_THAT(read_file(said),
               testing::Contains("initial_checkpoint: " + first.run_directory + "/latest: is not there; using " +
                                 checkpoint_directory(first.run_directory, 8)));
    const Checkpoint after = load_checkpoint(checkpoint_directory(second.run_directory, 1));
    CHECK(mismatch(eighth.model[name], after.model[name], {1e-7, 0.0}) == "");
  }
}

TEST_CASE("Accumulated micro-batches give the step of the whole batch", "[unit][trainer]") {
  const TemporaryDirectory directory;
  std::vector<torch::Tensor> weights;
  for (const int64_t micro_batch_size : {8, 2}) {
    PretrainConfig config = tiny(directory, std::to_string(micro_batch_size));
    config.micro_batch_size = micro_batch_size;
    config.optimizer.average = GradientAverage::kMaskedTokens;
    config.stop_at_step = 3;
    REQUIRE(pretrain(config, false) == kOk);
    weights.push_back(load_checkpoint(checkpoint_directory(config.run_directory, 3))
                          .model["bert.encoder.layer.0.output.dense.weight"]);
  }
  CHECK(mismatch(weights[0], weights[1], {2e-5, 1e-4}) == "");  // fp32 sums have another order, three steps of Adam
}

TEST_CASE("Two ranks train as one does", "[trainer][distributed]") {
  const TemporaryDirectory directory;
  const std::string name = "bert.encoder.layer.0.output.dense.weight";
  std::vector<torch::Tensor> weights;
  std::vector<std::map<std::string, double>> figures;
  for (const int ranks : {1, 2}) {
    PretrainConfig config = tiny(directory, std::to_string(ranks));
    config.evaluate_every = 3;
    config.stop_at_step = 3;
    REQUIRE(result_of(start(config, "", ranks)) == kOk);
    const Checkpoint third = load_checkpoint(checkpoint_directory(config.run_directory, 3));
    weights.push_back(third.model[name]);
    figures.push_back(third.state.metrics);
    CHECK(third.state.consumed_samples == 24);
    config.stop_at_step = 5;
    REQUIRE(result_of(start(config, "", ranks)) == kOk);  // continues from step 3
    CHECK(load_checkpoint(checkpoint_directory(config.run_directory, 5)).state.consumed_samples == 40);
  }
  // Each rank has evaluated one of the two batches of held-out examples.
  CHECK(figures[0].count("mlm_loss") + figures[0].count("mlm_loss_untrained") == 2);
  REQUIRE(figures[0].size() == figures[1].size());
  for (const auto& [key, value] : figures[0]) {
    CAPTURE(key);
    CHECK(figures[1].at(key) == Approx(value).epsilon(1e-4));  // fp32 sums have another order
  }
  CHECK(mismatch(weights[0], weights[1], {2e-5, 1e-4}) == "");  // fp32 sums have another order, three steps of Adam
}

TEST_CASE("A signal to a launcher and to its ranks at once saves a checkpoint", "[trainer][distributed]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.max_steps = 100'000;
  config.checkpoint_every = 0;
  const pid_t launcher = start(config, "", 2);
  const std::string metrics = config.run_directory + "/metrics.jsonl";
  for (int i = 0; i < 3000 && (!std::filesystem::exists(metrics) || std::filesystem::file_size(metrics) == 0); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::vector<pid_t> ranks = bert::testing::children_named("bert", launcher);
  REQUIRE(ranks.size() == 2);
  // systemd signals all processes, as does Slurm if it signals all processes of a step; the launcher forwards its
  // signal too.
  kill(launcher, SIGTERM);
  for (const pid_t rank : ranks) kill(rank, SIGTERM);
  CHECK(result_of(launcher) == kPreempted);
  CHECK(list_checkpoints(config.run_directory).size() == 1);
}

TEST_CASE("A run goes from 1 to 2 to 4 ranks and back as if it had stayed on one", "[trainer][distributed]") {
  const TemporaryDirectory directory;
  const auto configure = [&](const std::string& name, bool sharded) {
    PretrainConfig config = tiny(directory, name);
    config.optimizer.type = OptimizerType::kLamb;
    config.global_batch_size = 16;
    config.checkpoint_every = 0;
    config.log_every = 1;
    config.report.emplace_back("samples");
    config.distributed.shard_optimizer_state = sharded;
    return config;
  };
  const auto lines = [](const std::string& path, const char* key) {
    std::map<int64_t, nlohmann::json> result;
    for (const auto& object : json_lines(std::ifstream(path)))
      CHECK(result.emplace(object["step"], object[key]).second);
    return result;
  };
  PretrainConfig one = configure("one", false), mixed = configure("mixed", true);
  REQUIRE(run_in_child(one) == kOk);
  int64_t stop = 0;
  for (const int ranks : {1, 2, 4, 1}) {
    mixed.stop_at_step = stop += 3;
    REQUIRE(result_of(start(mixed, ranks == 2 ? "train.step:2" : "", ranks)) == (ranks == 2 ? 128 + SIGKILL : kOk));
    if (ranks == 2)
      REQUIRE(result_of(start(mixed, "", ranks)) == kOk);  // it was killed in the middle and continues from step 3
  }
  const auto want = lines(one.run_directory + "/metrics.jsonl", "loss"),
             got = lines(mixed.run_directory + "/metrics.jsonl", "loss");
  REQUIRE(want.size() == 12);
  REQUIRE(got.size() == 12);
  for (const auto& [step, loss] : want) {
    CHECK(got.at(step).get<double>() == Approx(loss.get<double>()).epsilon(1e-4));  // fp32 sums have another order
  }

  std::map<int64_t, std::set<int64_t>> examples;
  for (int rank = 0; rank < 4; ++rank) {
    const std::string path = mixed.run_directory + "/samples-rank-0000" + std::to_string(rank) + ".jsonl";
    for (const auto& [step, list] : lines(path, "examples")) {
      for (const int64_t example : list) CHECK(examples[step].insert(example).second);
    }
  }
  for (const auto& [step, list] : lines(one.run_directory + "/samples-rank-00000.jsonl", "examples")) {
    CHECK(examples.at(step) == list.get<std::set<int64_t>>());
  }
  CHECK(examples.size() == 12);
  const Checkpoint a = load_checkpoint(checkpoint_directory(one.run_directory, 12)),
                   b = load_checkpoint(checkpoint_directory(mixed.run_directory, 12));
  CHECK(a.optimizer.keys() == b.optimizer.keys());
  for (const auto& item : a.model) {
    CAPTURE(item.key());
    CHECK(mismatch(item.value(), b.model[item.key()], {1e-5, 1e-3}) == "");  // fp32 sums have another order, 12 steps
  }
}

TEST_CASE("Ranks get packed tokens within 2 % of each other in every step; the run prints how near, and what decays",
          "[trainer][distributed]") {
  constexpr int kRanks = 3;
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.global_batch_size = 96;
  config.max_steps = 4;
  config.report.emplace_back("samples");
  const std::string errors = directory.path("stderr");
  REQUIRE(result_of(start(config, "", kRanks, [&] { dup2(creat(errors.c_str(), 0600), STDERR_FILENO); })) == kOk);
  const PretrainingShards shards(config.data.train);
  std::map<int64_t, std::vector<int64_t>> tokens;  // tokens of every rank, by step
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string file = config.run_directory + "/samples-rank-0000" + std::to_string(rank) + ".jsonl";
    for (const auto& object : json_lines(std::ifstream(file))) {
      int64_t& sum = tokens[object["step"]].emplace_back(0);
      for (const int64_t example : object["examples"]) {
        sum += static_cast<int64_t>(shards.example(example).input_ids.size());
      }
    }
  }
  REQUIRE(tokens.size() == 4);
  const auto percent_apart = [](const std::vector<int64_t>& sums) {
    const auto [least, most] = std::minmax_element(sums.begin(), sums.end());
    return 100 * (static_cast<double>(*most) / static_cast<double>(*least) - 1);
  };
  for (const auto& [step, sums] : tokens) {
    CAPTURE(step);
    REQUIRE(sums.size() == kRanks);
    CHECK(percent_apart(sums) < 2);
  }
  const auto [least, most] = std::minmax_element(tokens[1].begin(), tokens[1].end());
  const std::string said = read_file(errors);
  CHECK_THAT(said, bert::testing::Contains(fmt::format("{} ranks, {} to {} tokens each in a step ({:.2f} % apart)\n",
                                                       kRanks, *least, *most, percent_apart(tokens[1]))));
  const auto groups = group_parameters(named_parameters(*BertForPreTraining(config.model)), config.optimizer);
  const std::string log = read_file(config.run_directory + "/run.log");
  CHECK_THAT(log, bert::testing::Contains("adamw, " + describe(groups)));
  CHECK_THAT(log, bert::testing::Contains("\nweight decay 0: ") &&
                      bert::testing::Contains("\n  bert.encoder.layer.*.output.LayerNorm.weight [32] x 2\n"));
}

TEST_CASE("A run says what is wrong with its inputs", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.data.train = {directory.path("absent.shard")};
  CHECK(run_in_child(config) == kInputMissing);
  config = tiny(directory, "run");
  config.global_batch_size = 6;
  CHECK(run_in_child(config) == kBadConfiguration);
  config = tiny(directory, "run");
  config.model.max_position_embeddings = 8;
  CHECK(run_in_child(config) == kBadConfiguration);
  config = tiny(directory, "run");
  std::ofstream(directory.path("other.txt")) << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nother\n";
  config.data.vocab_file = directory.path("other.txt");
  CHECK(run_in_child(config) == kBadConfiguration);
}
