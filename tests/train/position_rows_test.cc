// Position tables longer than those of the checkpoint that a run starts from.
#include "app/checkpoint/position_rows.h"

#include <torch/types.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "app/finetune/finetuning_run.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/train/pretrain.h"
#include "app/verbs/verbs.h"
#include "tests/support/command_testing.h"
#include "tests/support/load_checkpoint.h"
#include "tests/support/mismatch.h"
#include "tests/support/pretrain_process.h"
#include "tests/support/tiny_finetuning.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::CommandResult;
using bert::testing::Contains;
using bert::testing::finetuning_refusal;
using bert::testing::kLength;
using bert::testing::last_checkpoint;
using bert::testing::load_checkpoint;
using bert::testing::mismatch;
using bert::testing::run_command;
using bert::testing::TemporaryDirectory;
using bert::testing::tiny;
using bert::testing::tiny_task;
using bert::testing::Tolerance;

TEST_CASE("Rows of a longer position table repeat, interpolate as PyTorch, or are new", "[unit][long_texts]") {
  const auto golden = nlohmann::json::parse(std::ifstream(bert::testing::golden("long_texts.json")))["positions"];
  const torch::Tensor table = torch::tensor(golden["table"].get<std::vector<float>>()).view({4, 3}),
                      initial = torch::randn({9, 3});
  const torch::Tensor between = torch::tensor(golden["interpolated"].get<std::vector<float>>()).view({9, 3});
  CHECK(mismatch(longer_positions(table, initial, PositionRows::kInterpolate), between) == "");
  const torch::Tensor drawn = longer_positions(table, initial, PositionRows::kRandom);
  CHECK(drawn.equal(torch::cat({table, initial.narrow(0, 4, 5)})));
  const torch::Tensor repeated = longer_positions(table, initial, PositionRows::kRepeat);
  CHECK(repeated.equal(torch::cat({table, table, table.narrow(0, 0, 1)})));
  StateDict weights, optimizer;
  weights.insert(kPositionTable, table);
  optimizer.insert(std::string("exp_avg.") + kPositionTable, torch::ones({4, 3}));
  optimizer.insert(std::string("master.") + kPositionTable, table);
  CHECK(lengthen_positions(weights, optimizer, initial, PositionRows::kRepeat) ==
        "its table of 4 positions gets 9 rows (initial_positions=repeat)");
  CHECK(weights[kPositionTable].equal(repeated));
  CHECK(optimizer[std::string("master.") + kPositionTable].equal(repeated));
  CHECK(optimizer[std::string("exp_avg.") + kPositionTable].equal(
      torch::cat({torch::ones({4, 3}), torch::zeros({5, 3})})));
  CHECK(lengthen_positions(weights, optimizer, initial, PositionRows::kRepeat).empty());
}

TEST_CASE("A run with more positions than initial_checkpoint lengthens its table", "[unit][long_texts]") {
  const TemporaryDirectory directory;
  const PretrainConfig first = tiny(directory, "first");
  REQUIRE(pretrain(first, false) == kOk);
  const torch::Tensor before = load_checkpoint(last_checkpoint(first)).model[kPositionTable];
  for (const PositionRows rows : {PositionRows::kRepeat, PositionRows::kInterpolate, PositionRows::kRandom}) {
    CAPTURE(name_of_value(rows));
    PretrainConfig next = tiny(directory, name_of_value(rows));
    next.initial_checkpoint = first.run_directory;
    next.initial_optimizer_state = rows != PositionRows::kRandom;
    next.initial_positions = rows;
    next.model.max_position_embeddings = 3 * kLength;
    next.max_steps = 1;
    next.optimizer.lr = 1e-9;  // so small that the weights stay comparable
    int code = -1;
    CHECK_THAT(bert::testing::said(next, code),
               Contains(fmt::format("its table of {} positions gets {} rows (initial_positions={})", kLength,
                                    3 * kLength, name_of_value(rows))));
    REQUIRE(code == kOk);
    const torch::Tensor after = load_checkpoint(last_checkpoint(next)).model[kPositionTable];
    REQUIRE(after.size(0) == 3 * kLength);
    constexpr Tolerance kClose{1e-7, 0};
    const bool interpolates = rows == PositionRows::kInterpolate;
    CHECK((mismatch(after.narrow(0, 0, kLength), before, kClose) == "") == !interpolates);
    CHECK((mismatch(after.narrow(0, 2 * kLength, kLength), before, kClose) == "") == (rows == PositionRows::kRepeat));
    CHECK(mismatch(after[0], before[0], kClose) == "");
    if (interpolates) CHECK(mismatch(after[-1], before[-1], kClose) == "");
  }
  PretrainConfig shorter = tiny(directory, "shorter");
  shorter.initial_checkpoint = first.run_directory;
  shorter.model.max_position_embeddings = kLength - 1;
  CHECK_THROWS_WITH(pretrain(shorter, false), Contains("max_position_embeddings"));
}

TEST_CASE("A fine-tuning run may read longer texts than its checkpoint", "[unit][long_texts]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_task(directory, "run");
  config.model.max_position_embeddings = config.data.task.max_seq_length = 2 * kLength;
  config.given = {"/model/max_position_embeddings"};
  config.stop_at_step = 4;
  REQUIRE(finetune(config, false) == kOk);
  config.stop_at_step = 0;  // goes on from its own checkpoint
  REQUIRE(finetune(config, true) == kOk);
  CHECK(load_checkpoint(config.run_directory + "/latest").model[kPositionTable].size(0) == 2 * kLength);
  FinetuneConfig shorter = tiny_task(directory, "shorter");
  shorter.model.max_position_embeddings = shorter.data.task.max_seq_length = kLength / 2;
  shorter.given = {"/model/max_position_embeddings"};
  CHECK_THAT(finetuning_refusal<ConfigError>(shorter), Contains("/model/max_position_embeddings: is 12"));
}

TEST_CASE("Phase 2 runs with sequences of 1,024 and 2,048 tokens, and is planned", "[unit][long_texts]") {
  const TemporaryDirectory directory;
  const PretrainConfig first = tiny(directory, "first");
  REQUIRE(pretrain(first, false) == kOk);
  std::ofstream text(directory.path("text.txt"));
  for (int document = 0; document < 8; ++document) {
    for (int sentence = 0; sentence < 300; ++sentence)
      for (int word = 0; word < 8; ++word) text << 5 + (document + sentence + word) % 50 << (word < 7 ? " " : "\n");
    text << "\n";
  }
  text.close();
  double memory = 0;
  for (const int64_t length : {1024, 2048}) {
    CAPTURE(length);
    PretrainConfig next = tiny(directory, std::to_string(length));
    next.data.train = {directory.path("shard-" + std::to_string(length))};
    next.data.validation = {};
    REQUIRE(
        run_command(data_command, {"data", "create", "--input", directory.path("text.txt"), "--vocab",
                                   next.data.vocab_file, "--output", next.data.train[0], "--max-seq-length",
                                   std::to_string(length), "--max-predictions-per-seq", "160", "--dupe-factor", "2"})
            .code == kOk);
    next.initial_checkpoint = first.run_directory;
    next.model.max_position_embeddings = length;
    next.max_steps = 2;
    next.micro_batch_size = 1;
    next.global_batch_size = 2;
    REQUIRE(pretrain(next, false) == kOk);
    const std::string file = directory.path(std::to_string(length) + ".json");
    std::ofstream(file) << to_json(next);
    const CommandResult plan =
        run_command(plan_command, {"plan", file, "--length", std::to_string(length), "--gpu", "h100", "--json"});
    REQUIRE(plan.code == kOk);
    const auto line = nlohmann::json::parse(plan.out);
    CHECK(line["step_ms"].get<double>() > 0);
    CHECK(line["memory_bytes"].get<double>() > memory);
    memory = line["memory_bytes"];
  }
}
