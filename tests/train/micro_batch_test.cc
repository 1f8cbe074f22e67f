// micro_batch_size "auto": the size that a run takes, and keeps when it goes on.
#include "app/train/micro_batch.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "app/checkpoint/files.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/system/machine/memory.h"
#include "app/train/pretrain.h"
#include "data/io/files.h"
#include "tests/places.h"
#include "tests/support/tiny_pretraining.h"
// Last, because it includes Catch2.
#include "tests/support/launcher_testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

struct Choice {
  int64_t size = 0;
  std::string said;
};

/// The choice for `config`, whose model has one parameter tensor and whose longest sequence has `tokens` tokens.
Choice choose(const RunConfig& config, int64_t parameters, double tokens, int64_t earlier = 0) {
  Choice choice;
  choice.size = choose_micro_batch(
      config, {parameters}, {.tokens = tokens, .masked = 0}, {},
      [earlier](const std::string& json, const std::string&) {
        if (json == "damaged") throw ConfigError(json);
        return earlier;
      },
      [&](const std::string& sentence) { choice.said += sentence + "\n"; });
  return choice;
}

nlohmann::json config_of_run(const RunConfig& config) {
  return nlohmann::json::parse(read_file(config.run_directory + "/config.json"));
}

}  // namespace

TEST_CASE("auto takes the largest micro-batch whose plan fits, and says so", "[unit][trainer]") {
  RunConfig config;
  config.global_batch_size = 12;
  config.micro_batch_size = 6;
  CHECK(choose(config, 1, 1).size == 6);
  CHECK(choose(config, 1, 1).said.empty());
  config.micro_batch_size = RunConfig::kFromMemory;
  const Choice whole = choose(config, 1, 1);
  CHECK(whole.size == 12);
  CHECK_THAT(whole.said, Contains("micro_batch_size auto: 12, the largest that fits") && !Contains("warning"));
  // Of a sequence with these tokens two fit with room to spare, and four do not, by far.
  config.global_batch_size = 4;
  config.model.num_hidden_layers = 1;
  config.model.attention_probs_dropout_prob = 0;  // else memory grows with the square of the length
  config.micro_batch_size = 1;
  const double of_token = plan_memory(config, {1}, {.tokens = 1, .masked = 0}, 1).total();
  config.micro_batch_size = RunConfig::kFromMemory;
  const double tokens =
      0.35 * plannable_bytes(config, static_cast<double>(available_memory()), /*is_gpu=*/false) / of_token;
  const Choice part = choose(config, 1, tokens);
  CHECK(part.size == 2);
  CHECK_THAT(part.said, Contains("micro_batch_size auto: 2") && Contains("warning") &&
                            Contains("optimizer.average=masked_tokens"));
  config.optimizer.average = GradientAverage::kMaskedTokens;
  CHECK_THAT(choose(config, 1, tokens).said, !Contains("warning"));
  CHECK_THROWS_WITH(choose(config, int64_t{1} << 50, 1),
                    Contains("micro_batch_size auto: the plan of one sequence") && Contains("gradient_checkpointing"));
}

TEST_CASE("A run that goes on with auto keeps its micro-batch", "[unit][trainer]") {
  const TemporaryDirectory directory;
  RunConfig config;
  config.run_directory = directory.path("run");
  config.global_batch_size = 12;
  config.micro_batch_size = RunConfig::kFromMemory;
  std::filesystem::create_directory(config.run_directory);
  std::ofstream(config.run_directory + "/config.json") << "{}";
  const Choice kept = choose(config, 1, 1, 3);
  CHECK(kept.size == 3);
  CHECK_THAT(kept.said, Contains("micro_batch_size auto: 3, as before (the largest that fits is 12); the plan is "));
  CHECK(choose(config, 1, 1, 5).size == 12);   // does not divide
  CHECK(choose(config, 1, 1, 24).size == 12);  // too large
  CHECK(choose(config, 1, 1, 0).size == 12);
  std::ofstream(config.run_directory + "/config.json") << "damaged";
  CHECK(choose(config, 1, 1, 3).size == 12);
}

TEST_CASE("A run with auto trains as one with that number", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig number = tiny(directory, "number"), by_memory = tiny(directory, "auto");
  number.micro_batch_size = number.global_batch_size;
  by_memory.micro_batch_size = RunConfig::kFromMemory;
  for (PretrainConfig* config : {&number, &by_memory}) {
    config->stop_at_step = 4;
    REQUIRE(pretrain(*config, false) == kOk);
  }
  CHECK(config_of_run(by_memory)["micro_batch_size"] == by_memory.global_batch_size);
  CHECK_THAT(read_file(by_memory.run_directory + "/run.log"),
             Contains("opening the shards of data.train\n") && Contains("micro_batch_size auto: 8"));
  const auto weights = [](const RunConfig& config) {
    return read_file(checkpoint_directory(config.run_directory, 4) + "/model.safetensors");
  };
  CHECK(weights(number) == weights(by_memory));
  // The number was changed by hand since; auto keeps it.
  number.stop_at_step = 6;
  number.micro_batch_size = 2;
  REQUIRE(pretrain(number, false) == kOk);
  number.stop_at_step = 8;
  number.micro_batch_size = RunConfig::kFromMemory;
  REQUIRE(pretrain(number, false) == kOk);
  CHECK(config_of_run(number)["micro_batch_size"] == 2);
}

TEST_CASE("Ranks with auto take the same micro-batch", "[trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.micro_batch_size = RunConfig::kFromMemory;
  config.max_steps = 2;
  std::ofstream(directory.path("run.json")) << to_json(config);
  Launcher launcher(
      {"--standalone", "--nproc-per-node", "2", BERT_EXECUTABLE, "pretrain", directory.path("run.json")}, [] {},
      BERTRUN_EXECUTABLE);
  CHECK(launcher.wait() == kOk);
  CHECK_THAT(launcher.err(), Contains("micro_batch_size auto: 4, the largest that fits"));
  CHECK(config_of_run(config)["micro_batch_size"] == 4);
}
