// Runs that cannot continue, or not as requested: the refusal has the reason, and no existing file is lost.
#include <sys/resource.h>
#include <torch/types.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/checkpoint/checkpoint.h"
#include "app/inference/predictor.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/train/pretrain.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/support/load_checkpoint.h"
#include "tests/support/pretrain_process.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Contains;
using bert::testing::load_checkpoint;
using bert::testing::result_of;
using bert::testing::said;
using bert::testing::start;
using bert::testing::TemporaryDirectory;
using bert::testing::tiny;
using bert::testing::write_counting_shard;

TEST_CASE("A run does not go on with other examples unless it is told to", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.stop_at_step = 4;
  REQUIRE(pretrain(config, false) == kOk);
  PretrainConfig resolved = config;
  resolved.objective = Objective::kNsp;  // in place of auto
  const std::string digest = config_sha256(resolved);
  CHECK(nlohmann::json::parse(read_file(config.run_directory + "/summary.json"))["config_sha256"] == digest);
  const std::string fourth = checkpoint_directory(config.run_directory, 4);
  CHECK(load_checkpoint(fourth).state.config_sha256 == digest);
  CHECK(load_checkpoint(fourth).state.data.at("train").examples == 300);

  config.stop_at_step = 8;
  write_counting_shard(directory.path("train.shard"), 200, 9);  // another content under the same name
  CHECK_THROWS_AS(pretrain(config, false), ConfigError);
  CHECK_THROWS_WITH(pretrain(config, false), Contains("the content of data.train: was 300 examples, checksum ") &&
                                                 Contains("now 200") && Contains("--allow-config-change"));
  Checkpoint older = load_checkpoint(fourth);  // like a checkpoint of a version that kept no identities
  older.state.data.clear();
  older.state.config_sha256.clear();
  write_checkpoint(fourth, older);
  CHECK(pretrain(config, false) == kOk);
  write_counting_shard(directory.path("train.shard"), 100, 10);
  config.stop_at_step = 10;
  CHECK_THROWS_AS(pretrain(config, false), ConfigError);
  CHECK(pretrain(config, true) == kOk);
  CHECK(load_checkpoint(checkpoint_directory(config.run_directory, 10)).state.data.at("train").examples == 100);
}

TEST_CASE("A checkpoint that does not fit is refused with the keys that differ", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig first = tiny(directory, "first");
  first.stop_at_step = 2;
  REQUIRE(pretrain(first, false) == kOk);
  const auto wider = [](PretrainConfig& config) { config.model.hidden_size = 48; };
  const auto deeper = [](PretrainConfig& config) { config.model.num_hidden_layers = 3; };

  for (const bool moments : {false, true}) {
    PretrainConfig second = tiny(directory, "second");
    second.initial_checkpoint = first.run_directory;
    second.initial_optimizer_state = moments;
    second.optimizer.lr = 1e-4;  // optimizer.lr is not a reason why tensors do not fit
    wider(second);
    CHECK_THROWS_AS(pretrain(second, false), ConfigError);
    CHECK_THROWS_WITH(pretrain(second, false), Contains("initial_checkpoint: ") &&
                                                   Contains("/model/hidden_size: was 32, now 48") &&
                                                   !Contains("/optimizer/lr") && !Contains("frame #"));
  }
  PretrainConfig absent = tiny(directory, "absent");
  absent.initial_checkpoint = directory.path("nowhere");
  CHECK_THROWS_WITH(pretrain(absent, false), Contains("initial_checkpoint: " + absent.initial_checkpoint));
  CHECK_THROWS_AS(pretrain(absent, false), InputMissing);

  const std::vector<std::pair<std::string, std::function<void(PretrainConfig&)>>> changes = {
      {"/model/hidden_size: was 32, now 48", wider},
      {"/model/num_hidden_layers: was 2, now 3", deeper},
      {"/precision: was \"fp32\", now \"bf16-weights\"",
       [](PretrainConfig& c) { c.precision = Precision::kBf16Weights; }},
      {"/optimizer/ema_decay: was 0", [](PretrainConfig& c) { c.optimizer.ema_decay = 0.9; }}};
  for (const auto& [difference, change] : changes) {
    CAPTURE(difference);
    PretrainConfig config = first;
    config.stop_at_step = 4;
    change(config);
    CHECK_THROWS_AS(pretrain(config, true), ConfigError);
    CHECK_THROWS_WITH(pretrain(config, true),
                      Contains("does not fit this configuration") && Contains(difference) && !Contains("frame #"));
  }
}

TEST_CASE("A run that cannot write its metrics saves a checkpoint first", "[trainer][distributed]") {
  const TemporaryDirectory directory;
  std::string earlier;  // larger than any file of a checkpoint: the limit below affects metrics.jsonl alone
  while (earlier.size() < 2'000'000) earlier += "{\"step\":0}\n";
  for (const int ranks : {1, 2}) {
    CAPTURE(ranks);
    PretrainConfig config = tiny(directory, "run" + std::to_string(ranks));
    config.checkpoint_every = config.keep_checkpoints = 1;
    config.stop_at_step = 1;
    REQUIRE(pretrain(config, false) == kOk);
    config.stop_at_step = config.checkpoint_every = 0;
    config.log_every = 5;
    std::ofstream(config.run_directory + "/metrics.jsonl") << earlier;
    int code = 0;
    const std::string text = said(config, code, ranks, [&] {
      const rlimit limit{earlier.size() + 100, earlier.size() + 100};
      setrlimit(RLIMIT_FSIZE, &limit);
    });
    CHECK(code == kIo);
    CHECK_THAT(text, Contains("metrics.jsonl: cannot write: File too large") && Contains(", with a checkpoint"));
    REQUIRE(list_checkpoints(config.run_directory).size() == 1);
    CHECK(list_checkpoints(config.run_directory).front().step >= 5);
    CHECK(read_file(config.run_directory + "/metrics.jsonl") == earlier);
    CHECK_THAT(said(config, code, ranks), Contains("continuing from"));
    CHECK(code == kOk);
  }
}

TEST_CASE("A file in the place of the checkpoints is told before the first step", "[unit][trainer]") {
  const TemporaryDirectory directory;
  const PretrainConfig config = tiny(directory, "run");
  std::filesystem::create_directories(config.run_directory);
  std::ofstream(config.run_directory + "/checkpoints") << "mine";
  CHECK_THROWS_WITH(pretrain(config, false), Contains(config.run_directory + "/checkpoints: is a file"));
  CHECK_THROWS_AS(pretrain(config, false), IoError);
  CHECK_FALSE(std::filesystem::exists(config.run_directory + "/metrics.jsonl"));
}

TEST_CASE("A run whose checkpoints are all damaged ends, and leaves them as they are", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.stop_at_step = 8;
  REQUIRE(pretrain(config, false) == kOk);
  for (const CheckpointEntry& entry : list_checkpoints(config.run_directory)) {
    std::filesystem::resize_file(entry.directory + "/model.safetensors", 100);
  }
  CHECK_THROWS_AS(pretrain(config, false), DataError);
  CHECK_THROWS_WITH(pretrain(config, false),
                    Contains("has no valid checkpoint; remove this directory to start again:") &&
                        Contains("step-00000008/model.safetensors") && Contains("step-00000004/model.safetensors"));
  CHECK(list_checkpoints(config.run_directory).size() == 2);
}

TEST_CASE("A file that does not belong to a checkpoint is told, and the run goes on", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.stop_at_step = 8;
  REQUIRE(pretrain(config, false) == kOk);
  std::ofstream(checkpoint_directory(config.run_directory, 8) + "/.DS_Store") << "x";
  std::filesystem::remove(config.run_directory + "/latest");  // as a copy that follows links leaves it
  std::filesystem::copy(checkpoint_directory(config.run_directory, 8), config.run_directory + "/latest");
  config.stop_at_step = 0;
  int code = 0;
  const std::string text = said(config, code);
  CHECK(code == kOk);
  CHECK_THAT(text, Contains("has .DS_Store, which the manifest does not list") && Contains("is a copy and no link") &&
                       Contains("continuing from"));
}

TEST_CASE("A model with more rows than the vocabulary has tokens says so", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.model.vocab_size = 72;
  config.max_steps = 2;
  int code = 0;
  CHECK_THAT(said(config, code), Contains("model.vocab_size 72: ") && Contains("has 64 tokens") && Contains("padding"));
  CHECK(code == kOk);
}

TEST_CASE("A run whose directory is moved under it stops, and leaves the run that has taken its path alone",
          "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.max_steps = 100'000;
  config.checkpoint_every = 20;
  config.keep_checkpoints = 2;
  const std::string moved = directory.path("moved");
  const pid_t first = start(config);
  while (!std::filesystem::exists(config.run_directory + "/latest")) usleep(1000);
  std::filesystem::rename(config.run_directory, moved);
  PretrainConfig second = config;
  second.max_steps = 4;
  second.checkpoint_every = 2;
  CHECK(result_of(start(second)) == kOk);
  CHECK(result_of(first) == kIo);
  CHECK(std::filesystem::exists(config.run_directory + "/checkpoints/step-00000002"));
  CHECK(std::filesystem::exists(config.run_directory + "/checkpoints/step-00000004"));
  CHECK_FALSE(std::filesystem::is_empty(moved + "/checkpoints"));
}
