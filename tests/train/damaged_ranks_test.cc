// A damaged row ends a run of several ranks as it ends that of one process: all ranks save the steps before it, and name
// it. Each rank has its own copy of the data here, so that the row is damaged in the copy of one rank alone.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/checkpoint/files.h"
#include "app/config/pretrain_config.h"
#include "app/distributed/process_group.h"
#include "app/net/socket.h"
#include "app/system/exit_codes.h"
#include "app/train/pretrain.h"
#include "data/io/files.h"
#include "data/loader/dataloader.h"
#include "tests/support/example_data.h"
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

constexpr int kRanks = 2;
const std::vector<int> kEnd = {kOk, kOk}, kBothRefuse = {kBadData, kBadData};

const TestProgram kWithOwnData("a rank with its own data", [] {
  const std::string text = read_file(variable("CONFIG"));
  fs::current_path(variable("HERE"));
  std::_Exit(guarded("rank", [&] { return pretrain(parse_pretrain_config(text, "config"), false); }));
});

/// Two ranks with copies of the data in directories of their own, and one run directory.
class Job {
 public:
  Job() : config_(testing::tiny(directory_, "unused")) {
    for (int rank = 0; rank < kRanks; ++rank) {
      fs::create_directory(here(rank));
      repair(rank);
    }
    config_.data.train = {"train.shard"};
    config_.global_batch_size = 24;  // 6 micro-batches: 3 for each rank
    config_.max_steps = 6;
    config_.checkpoint_every = 0;
    config_.distributed.timeout_seconds = 60;
  }

  [[nodiscard]] std::string shard(int rank) const { return here(rank) + "/train.shard"; }
  void repair(int rank) const {
    fs::copy_file(directory_.path("train.shard"), shard(rank), fs::copy_options::overwrite_existing);
  }
  [[nodiscard]] std::string error(int rank) const {
    return nlohmann::json::parse(read_file(here(rank) + "/error"))["message"]["message"];
  }

  /// Runs both ranks in the run directory `name`. Returns their exit codes.
  std::vector<int> run(const std::string& name) {
    config_.run_directory = run_directory(name);
    const std::string file = directory_.path("config.json");
    std::ofstream(file) << to_json(config_);
    const Descriptor reserved = reserve_port("127.0.0.1");
    std::vector<pid_t> pids;
    for (int rank = 0; rank < kRanks; ++rank) {
      fs::remove(here(rank) + "/error");
      pids.push_back(start_rank(kWithOwnData, rank, kRanks,
                                {{"CONFIG", file},
                                 {"HERE", here(rank)},
                                 {"MASTER_PORT", std::to_string(port_of(reserved.get()))},
                                 {"TORCHELASTIC_ERROR_FILE", here(rank) + "/error"}}));
    }
    std::vector<int> codes;
    for (const pid_t pid : pids) codes.push_back(wait_for(pid));
    return codes;
  }

  /// A row that `rank` reads in step `step` (from 0), and that nobody reads in a step before.
  [[nodiscard]] int64_t row_of(int rank, int64_t step) const {
    const auto shards = std::make_shared<const PretrainingShards>(std::vector{directory_.path("train.shard")});
    PretrainingDataLoader loader(shards, {.micro_batch_size = config_.micro_batch_size,
                                          .seed = static_cast<uint64_t>(config_.seed),
                                          .rank = rank,
                                          .world_size = kRanks,
                                          .global_batch_size = config_.global_batch_size});
    for (int64_t i = 0; i < step; ++i) loader.next_step();
    return loader.next_step().places.back().example;
  }

  [[nodiscard]] std::string run_directory(const std::string& name) const { return directory_.path(name); }
  [[nodiscard]] std::string last(const std::string& name, const char* file) const {
    return read_file(checkpoint_directory(run_directory(name), config_.max_steps) + "/" + file);
  }

  PretrainConfig& config() { return config_; }

 private:
  [[nodiscard]] std::string here(int rank) const { return directory_.path("rank-" + std::to_string(rank)); }

  TemporaryDirectory directory_;
  PretrainConfig config_;
};

}  // namespace

TEST_CASE("A damaged row of one rank ends all ranks with 65 and a checkpoint of the steps before it",
          "[distributed][trainer]") {
  Job job;
  REQUIRE(job.run("whole") == kEnd);
  const struct {
    int rank;
    int64_t step;  // the damaged one, from 0
  } cases[] = {{.rank = 1, .step = 0}, {.rank = 1, .step = 1}, {.rank = 1, .step = 4}, {.rank = 0, .step = 3}};
  for (const auto& c : cases) {
    CAPTURE(c.rank, c.step);
    const std::string name = fmt::format("{}-{}", c.rank, c.step);
    const int64_t row = job.row_of(c.rank, c.step);
    testing::damage_row(job.shard(c.rank), row);
    for (int again = 0; again < 2; ++again) {
      REQUIRE(job.run(name) == kBothRefuse);
      const auto checkpoints = list_checkpoints(job.run_directory(name));
      REQUIRE(checkpoints.size() == 1);
      CHECK(checkpoints.front().step == c.step);
      for (int rank = 0; rank < kRanks; ++rank)
        CHECK_THAT(job.error(rank), Contains("train.shard: byte ") && Contains(fmt::format(": row {}", row)));
    }
    job.repair(c.rank);
    REQUIRE(job.run(name) == kEnd);
    for (const char* file : {kModelFile, kOptimizerFile}) CHECK(job.last(name, file) == job.last("whole", file));
  }
}

TEST_CASE("A damaged row after the last step ends nothing", "[distributed][trainer]") {
  Job job;
  testing::damage_row(job.shard(1), job.row_of(1, 6));
  REQUIRE(job.run("run") == kEnd);
}

TEST_CASE("A damaged row ends ranks in the middle of an interval of the log, and beside checkpoints by the clock",
          "[distributed][trainer]") {
  Job job;
  job.config().log_every = 4;
  job.config().checkpoint_every_minutes = 1e-9;  // asked for before each step
  testing::damage_row(job.shard(1), job.row_of(1, 3));
  REQUIRE(job.run("run") == kBothRefuse);
  CHECK(list_checkpoints(job.run_directory("run")).back().step == 3);
}
