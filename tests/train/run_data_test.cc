// What a run reads: sources by weight, masks drawn in every epoch, packed micro-batches, damaged rows.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "app/checkpoint/files.h"
#include "app/system/exit_codes.h"
#include "data/io/files.h"
#include "tests/support/example_data.h"
#include "tests/support/lines.h"
#include "tests/support/pretrain_process.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Approx;
using testing::Contains;
using testing::metrics_of;
using testing::result_of;
using testing::run_in_child;
using testing::start;
using testing::TemporaryDirectory;
using testing::tiny;
using testing::write_counting_shard;

/// Three quarters of the sequences come from "large", 300 examples, and one from "small", 7 examples: several epochs.
PretrainConfig with_sources(const TemporaryDirectory& directory, const std::string& run) {
  PretrainConfig config = tiny(directory, run);
  if (!std::filesystem::exists(directory.path("small.shard")))
    write_counting_shard(directory.path("small.shard"), 7, 5);
  config.data.train.clear();
  config.data.sources = {{.path = directory.path("train.shard"), .weight = 3, .name = "large"},
                         {.path = directory.path("small.shard"), .weight = 1, .name = "small"}};
  return config;
}

void pack(PretrainConfig& config) {
  config.data.masking = Masking::kDynamic;
  config.micro_batch_tokens = 64;
  config.optimizer.average = GradientAverage::kMaskedTokens;
}

std::vector<nlohmann::json> intervals(const PretrainConfig& config) {
  std::vector<nlohmann::json> result = metrics_of(config.run_directory);
  std::erase_if(result, [](const nlohmann::json& object) { return !object.contains("loss"); });
  return result;
}

std::string bytes_at(const PretrainConfig& config, int64_t step, const std::string& name) {
  return read_file(fmt::format("{}/checkpoints/step-{:08}/{}", config.run_directory, step, name));
}

TEST_CASE("A run with sources, drawn masks and packing goes on in the middle of an epoch with the same bytes",
          "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig whole = with_sources(directory, "whole"), killed = with_sources(directory, "killed");
  for (PretrainConfig* config : {&whole, &killed}) pack(*config);
  REQUIRE(run_in_child(whole) == kOk);
  CHECK(run_in_child(killed, "train.step:7") == 1000 + SIGKILL);  // goes on after step 4
  CHECK(run_in_child(killed, "train.step:2") == 1000 + SIGKILL);
  REQUIRE(run_in_child(killed) == kOk);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    CHECK(bytes_at(whole, 12, file) == bytes_at(killed, 12, file));
  }
  const auto state = nlohmann::json::parse(bytes_at(whole, 12, "state.json"));
  CHECK(state["data"]["sources.large"]["examples"] == 300);
  CHECK(state["data"]["sources.small"]["examples"] == 7);
  CHECK_FALSE(state["data"].contains("train"));

  killed.max_steps = 13;
  killed.data.sources[0].weight = 2;
  CHECK(run_in_child(killed) == kBadConfiguration);
  killed.data.sources[0].weight = 3;
  killed.max_steps = 12;
  write_counting_shard(directory.path("small.shard"), 7, 6);
  CHECK(run_in_child(killed) == kBadConfiguration);
}

TEST_CASE("The log has the loss of each source, exactly and over all ranks", "[trainer][distributed]") {
  const TemporaryDirectory directory;
  std::vector<std::vector<nlohmann::json>> of_ranks;
  for (const int ranks : {1, 2}) {
    PretrainConfig config = with_sources(directory, fmt::format("ranks-{}", ranks));
    pack(config);
    config.log_every = 1;
    REQUIRE(result_of(start(config, "", ranks)) == kOk);
    of_ranks.push_back(intervals(config));
    REQUIRE(of_ranks.back().size() == 12);
  }
  for (size_t step = 0; step < 12; ++step) {
    CAPTURE(step);
    const auto &one = of_ranks[0][step], &two = of_ranks[1][step];
    double loss = 0, masked = 0;
    for (const char* name : {"large", "small"}) {
      const auto& source = one["sources"][name];
      loss += source["mlm_loss"].get<double>() * source["masked_tokens"].get<double>();
      masked += source["masked_tokens"].get<double>();
      CHECK(two["sources"][name]["examples"] == source["examples"]);
      CHECK(two["sources"][name]["masked_tokens"] == source["masked_tokens"]);
      CHECK(two["sources"][name]["mlm_loss"].get<double>() == Approx(source["mlm_loss"].get<double>()).epsilon(1e-4));
    }
    const auto large = one["sources"]["large"]["examples"].get<int64_t>(),
               small = one["sources"]["small"]["examples"].get<int64_t>();
    CHECK(std::abs(large - 3 * small) <= 3);
    CHECK(std::abs(large + small - 8) <= 2);
    CHECK(loss / masked == Approx(one["mlm_loss"].get<double>()).epsilon(1e-6));
    CHECK(two["mlm_loss"].get<double>() == Approx(one["mlm_loss"].get<double>()).epsilon(1e-4));
    for (const auto& line : {one, two}) {
      CHECK(line["fill"].get<double>() > 0.5);
      CHECK(line["fill"].get<double>() <= 1);
      CHECK(line["data_wait_seconds"].get<double>() >= 0);
      CHECK(line["tokens_per_rank"]["least"].get<double>() > 0);
    }
    const double seconds = one["tokens_per_rank"]["least"].get<double>() / one["tokens_per_second"].get<double>();
    CHECK(one["data_wait_share"].get<double>() ==
          Approx(one["data_wait_seconds"].get<double>() / seconds).epsilon(1e-6));
    CHECK(two["tokens_per_rank"]["least"].get<double>() + two["tokens_per_rank"]["most"].get<double>() ==
          one["tokens_per_rank"]["most"].get<double>());
  }
}

TEST_CASE("Packed micro-batches and length bins train as micro-batches of one size do", "[unit][trainer]") {
  const TemporaryDirectory directory;
  // With sequences of 12 tokens, 4 have room in 50 tokens, and packed steps are those of 16 sequences.
  write_counting_shard(directory.path("even.shard"), 300, 1, {}, 12);
  std::vector<std::vector<nlohmann::json>> runs;
  for (const char* name : {"plain", "packed", "bins"}) {
    PretrainConfig config = tiny(directory, name);
    config.optimizer.average = GradientAverage::kMaskedTokens;
    config.global_batch_size = 16;
    config.log_every = 1;
    config.data.train = {directory.path("even.shard")};
    if (name == std::string("packed")) config.micro_batch_tokens = 50;
    if (name == std::string("bins")) config.data.length_bin_size = 4;
    REQUIRE(run_in_child(config) == kOk);
    runs.push_back(intervals(config));
    REQUIRE(runs.back().size() == 12);
  }
  for (size_t step = 0; step < 12; ++step) {
    for (const size_t other : {size_t{1}, size_t{2}}) {
      for (const char* key : {"mlm_loss", "nsp_loss", "grad_norm"}) {
        CAPTURE(step, other, key);
        CHECK(runs[other][step][key].get<double>() == Approx(runs[0][step][key].get<double>()).epsilon(1e-3));
      }
    }
  }
}

TEST_CASE("A damaged row ends a run with 65 and a checkpoint of the steps before it", "[trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig whole = tiny(directory, "whole");
  whole.global_batch_size = 24;
  whole.max_steps = 13;  // 312 sequences: each of the 300 rows is read
  whole.checkpoint_every = 0;
  REQUIRE(run_in_child(whole) == kOk);
  PretrainConfig config = whole;
  config.run_directory = directory.path("damaged");
  const std::string shard = config.data.train.front(), copy = directory.path("copy");
  std::filesystem::copy_file(shard, copy);
  const auto last_of_whole = [&](const char* file) {
    return read_file(checkpoint_directory(whole.run_directory, whole.max_steps) + "/" + file);
  };
  const PretrainingShards shards({shard});
  for (const int64_t row : {int64_t{200}, shards.size() - 5, int64_t{3}}) {
    CAPTURE(row);
    std::filesystem::copy_file(copy, shard, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::remove_all(config.run_directory);
    testing::damage_row(shard, row);
    REQUIRE(run_in_child(config) == kBadData);
    const auto checkpoints = list_checkpoints(config.run_directory);
    REQUIRE(checkpoints.size() == 1);
    CHECK(checkpoints.front().step < whole.max_steps);
    REQUIRE(run_in_child(config) == kBadData);  // again, at the same step
    CHECK(list_checkpoints(config.run_directory).size() == 1);
    std::filesystem::copy_file(copy, shard, std::filesystem::copy_options::overwrite_existing);
    REQUIRE(run_in_child(config) == kOk);
    for (const char* file : {kModelFile, kOptimizerFile}) {
      CHECK(read_file(checkpoint_directory(config.run_directory, whole.max_steps) + "/" + file) == last_of_whole(file));
    }
  }
}

TEST_CASE("A shard that is cut under a run ends it with 65, path and offset, and a checkpoint", "[trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "cut");
  config.max_steps = 100'000;  // more than the run can take before the cut
  config.checkpoint_every = 2;
  const std::string shard = config.data.train.front(), errors = directory.path("stderr");
  const pid_t run = start(config, "", 1, [&] { dup2(creat(errors.c_str(), 0600), STDERR_FILENO); });
  for (int i = 0; i < 6000 && list_checkpoints(config.run_directory).empty(); ++i) usleep(10'000);
  const auto whole = std::filesystem::file_size(shard);
  std::filesystem::resize_file(shard, whole / 2);
  CHECK(result_of(run) == kBadData);
  CHECK_THAT(read_file(errors), Contains(shard + ": byte ") &&
                                    Contains(fmt::format("the file was cut to {} of its {} bytes", whole / 2, whole)));
  const auto checkpoints = list_checkpoints(config.run_directory);
  REQUIRE_FALSE(checkpoints.empty());
  CHECK_NOTHROW(verify_checkpoint(checkpoints.back().directory));
  CHECK_THAT(read_file(errors),
             Contains(fmt::format("stopped at step {}, with a checkpoint", checkpoints.back().step)));
}

TEST_CASE("A damaged row ends a run of several ranks, or is skipped by all and counted", "[trainer][distributed]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "strict");
  for (const int64_t row : {17, 18, 200}) testing::damage_row(config.data.train.front(), row);
  config.global_batch_size = 64;
  config.max_steps = 10;  // 640 sequences: two epochs and a part of the third
  CHECK(result_of(start(config, "", 2)) == kBadData);
  std::vector<std::vector<nlohmann::json>> runs;
  for (const int ranks : {1, 2}) {
    config.run_directory = directory.path(fmt::format("ranks-{}", ranks));
    config.data.corrupted_rows = CorruptedRows::kSkip;
    const std::string errors = directory.path("stderr");
    REQUIRE(result_of(start(config, "", ranks, [&] { dup2(creat(errors.c_str(), 0600), STDERR_FILENO); })) == kOk);
    CHECK_THAT(read_file(errors), Contains("3 damaged rows: ") && Contains("row 17: ") && Contains("row 200: "));
    runs.push_back(intervals(config));
  }
  int64_t replaced = 0;
  REQUIRE(runs[0].size() == runs[1].size());
  for (size_t i = 0; i < runs[0].size(); ++i) {
    CHECK(runs[0][i].value("corrupted_rows", 0) == runs[1][i].value("corrupted_rows", 0));
    CHECK(runs[0][i]["mlm_loss"].get<double>() == Approx(runs[1][i]["mlm_loss"].get<double>()).epsilon(1e-4));
    replaced += runs[0][i].value("corrupted_rows", 0);
  }
  CHECK(replaced >= 6);
  CHECK(replaced <= 9);
}

TEST_CASE("A run refuses shards without masks unless it draws them, and a budget without room", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  write_counting_shard(directory.path("bare.shard"), 40, 8, {{"masking", "none"}});
  config.data.train = config.data.validation = {directory.path("bare.shard")};
  config.evaluate_every = 6;
  CHECK(run_in_child(config) == kBadConfiguration);
  config.data.masking = Masking::kDynamic;
  CHECK(run_in_child(config) == kOk);
  config.run_directory = directory.path("other");
  config.optimizer.average = GradientAverage::kMaskedTokens;
  config.micro_batch_tokens = 20;  // sequences have up to 23 tokens
  CHECK(run_in_child(config) == kBadConfiguration);
  config.micro_batch_tokens = 400;  // 8 sequences of a step have about 140
  CHECK(run_in_child(config) == kBadConfiguration);
}

}  // namespace
}  // namespace bert
