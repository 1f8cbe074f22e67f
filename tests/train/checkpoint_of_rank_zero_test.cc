// Rank 0 alone reads the tensors of a checkpoint. The other ranks get here a checkpoint whose tensors are zeros on disk.
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/checkpoint/files.h"
#include "app/checkpoint/state.h"
#include "app/config/pretrain_config.h"
#include "app/distributed/process_group.h"
#include "app/net/socket.h"
#include "app/system/exit_codes.h"
#include "app/train/pretrain.h"
#include "app/train/pretraining_run.h"
#include "app/train/rank_agreement.h"
#include "data/io/files.h"
#include "tests/support/rank_processes.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Contains;
using bert::testing::start_rank;
using bert::testing::TemporaryDirectory;
using bert::testing::TestProgram;
using bert::testing::variable;
using bert::testing::wait_for;

namespace {

namespace fs = std::filesystem;

/// Replaces the bytes of all tensors of a safetensors file by zeros.
void gut(const std::string& path) {
  const std::string whole = read_file(path);
  uint64_t header = 0;
  std::memcpy(&header, whole.data(), sizeof header);
  fs::resize_file(path, sizeof header + header);
  fs::resize_file(path, whole.size());
}

const TestProgram kInOwnDirectory("a rank in a directory of its own", [] {
  const std::string text = read_file(variable("CONFIG"));
  fs::current_path(variable("HERE"));
  std::_Exit(guarded("rank", [&] { return pretrain(parse_pretrain_config(text, "config"), false); }));
});

/// Runs two ranks, each in a directory of its own, in which it finds the relative paths of the configuration. Returns
/// their exit codes.
std::vector<int> pretrain_in(const std::vector<std::string>& directories, const PretrainConfig& config) {
  const Descriptor reserved = reserve_port("127.0.0.1");
  const std::string file = directories.front() + "/config.json";
  std::ofstream(file) << to_json(config);
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string& directory = directories[static_cast<size_t>(rank)];
    pids.push_back(start_rank(kInOwnDirectory, rank, 2,
                              {{"CONFIG", file},
                               {"HERE", directory},
                               {"MASTER_PORT", std::to_string(port_of(reserved.get()))},
                               {"TORCHELASTIC_ERROR_FILE", directory + "/error-" + std::to_string(rank)}}));
  }
  std::vector<int> codes;
  for (const pid_t pid : pids) codes.push_back(wait_for(pid));
  return codes;
}

PretrainConfig config_of(const TemporaryDirectory& directory, bool sharded) {
  PretrainConfig config = testing::tiny(directory, "unused");
  config.run_directory = "run";
  config.distributed.shard_optimizer_state = sharded;
  config.distributed.timeout_seconds = 60;
  config.optimizer.ema_decay = 0.9;
  if (sharded) config.precision = Precision::kBf16Weights;
  return config;
}

void expect_equal_checkpoints(const std::string& a, const std::string& b) {
  for (const char* file : {kModelFile, kOptimizerFile}) CHECK(read_file(a + "/" + file) == read_file(b + "/" + file));
}

const std::vector<int> kBothEnd = {kOk, kOk};

}  // namespace

const TestProgram kSavesTwice("a rank that saves twice", [] {
  const PretrainConfig config = parse_pretrain_config(read_file(variable("CONFIG")), "config");
  const ProcessGroupPtr group = join(config, c10::kCPU);
  const RunPlace place{.group = group};
  PretrainingRun run(read_pretraining_inputs(config, place), place);
  for (int64_t consumed = 0; consumed < 5; ++consumed) {
    run.save(0);
    const std::string state = checkpoint_directory(config.run_directory, 0) + "/" + kStateFile;
    CHECK(parse_checkpoint_state(read_file(state), state).consumed_samples == consumed * config.global_batch_size);
    barrier(group);  // rank 0 waits for the look at this checkpoint before it writes the next one
    run.loader().next_step();
  }
});

TEST_CASE("Every rank waits for each checkpoint of a step, also for the second", "[distributed]") {
  const TemporaryDirectory directory;
  PretrainConfig config = config_of(directory, false);
  config.run_directory = directory.path("run");
  fs::create_directory(config.run_directory);
  const std::string file = directory.path("config.json");
  std::ofstream(file) << to_json(config);
  const Descriptor reserved = reserve_port("127.0.0.1");
  CHECK(testing::run_ranks(kSavesTwice, 2,
                           {{"CONFIG", file}, {"MASTER_PORT", std::to_string(port_of(reserved.get()))}}) == kBothEnd);
}

TEST_CASE("A run continues, or starts, from a checkpoint that rank 0 alone has read, to the same bytes",
          "[distributed]") {
  for (const bool sharded : {false, true}) {
    CAPTURE(sharded);
    const TemporaryDirectory directory;
    const std::string first = directory.path("first"), second = directory.path("second"),
                      straight = directory.path("straight");
    for (const std::string& each : {first, straight}) fs::create_directory(each);
    PretrainConfig config = config_of(directory, sharded);
    REQUIRE(pretrain_in({straight, straight}, config) == kBothEnd);
    config.stop_at_step = 8;
    REQUIRE(pretrain_in({first, first}, config) == kBothEnd);
    fs::copy(first, second, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    const std::string early = "/run/checkpoints/step-00000008", last = "/run/checkpoints/step-00000012";
    gut(second + early + "/" + kModelFile);
    gut(second + early + "/" + kOptimizerFile);
    CHECK(read_file(first + early + "/" + kModelFile) != read_file(second + early + "/" + kModelFile));

    config.stop_at_step = 0;
    REQUIRE(pretrain_in({first, second}, config) == kBothEnd);
    expect_equal_checkpoints(first + last, straight + last);

    for (const bool moments : {false, true}) {
      CAPTURE(moments);
      PretrainConfig next = config;
      next.initial_checkpoint = "run/checkpoints/step-00000008";
      next.initial_optimizer_state = moments;
      next.run_directory = std::string("of-both-") + (moments ? "m" : "w");
      REQUIRE(pretrain_in({first, first}, next) == kBothEnd);
      const std::string whole = first + "/" + next.run_directory + "/checkpoints/step-00000012";
      next.run_directory = std::string("of-first-") + (moments ? "m" : "w");
      REQUIRE(pretrain_in({first, second}, next) == kBothEnd);
      expect_equal_checkpoints(first + "/" + next.run_directory + "/checkpoints/step-00000012", whole);
    }
  }
}

TEST_CASE("A damaged byte in the checkpoint to start from ends every rank with the same words", "[distributed]") {
  const TemporaryDirectory directory;
  const std::string here = directory.path("here");
  fs::create_directory(here);
  PretrainConfig config = config_of(directory, false);
  config.max_steps = 4;
  REQUIRE(pretrain_in({here, here}, config) == kBothEnd);
  const std::string damaged = here + "/run/checkpoints/step-00000004/" + kModelFile;
  std::fstream file(damaged, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-5, std::ios::end);
  const int byte = file.peek();
  file.seekp(-5, std::ios::end);
  file.put(static_cast<char>(byte ^ 1));
  file.close();
  config.initial_checkpoint = "run/checkpoints/step-00000004";
  config.run_directory = "next";
  CHECK(pretrain_in({here, here}, config) == std::vector<int>{kBadData, kBadData});
  std::vector<std::string> messages;
  for (const char* rank : {"0", "1"}) {
    const auto error = nlohmann::json::parse(read_file(here + "/error-" + rank));
    messages.push_back(error["message"]["message"]);
  }
  CHECK(messages[0] == messages[1]);
  CHECK_THAT(messages[0], Contains("DataError: ") && Contains("model.safetensors: damaged: the checksum of tensor "));
}
