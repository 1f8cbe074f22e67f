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

using namespace bert;
using bert::testing::Approx;
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

TEST_CASE(
    "A run in fp16, in its weights too, in tf32 or in fp8 that is killed ends in the same bytes, loss scale included",
    "[unit][trainer]") {
  for (const std::string precision : {"fp16", "fp16-weights", "tf32", "fp8"}) {
    CAPTURE(precision);
    const bool scaled = precision.starts_with("fp16");
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
