// The training loop on several ranks with a tiny model: as one rank does, and from one number to another.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "app/checkpoint/checkpoint.h"
#include "app/system/exit_codes.h"
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
using bert::testing::mismatch;
using bert::testing::result_of;
using bert::testing::run_in_child;
using bert::testing::start;
using bert::testing::TemporaryDirectory;
using bert::testing::tiny;

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
  CHECK(ranks.size() == 2);
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
