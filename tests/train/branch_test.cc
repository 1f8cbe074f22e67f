// Runs that branch from a kept checkpoint of another run.
#include <filesystem>
#include <string>

#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/files.h"
#include "app/system/exit_codes.h"
#include "app/train/pretrain.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "optim/lr_schedule.h"
#include "tests/support/lines.h"
#include "tests/support/load_checkpoint.h"
#include "tests/support/pretrain_process.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;
using testing::load_checkpoint;
using testing::TemporaryDirectory;
using testing::tiny;

/// A run of warm-up, stable and decay that keeps all its checkpoints; its last 4 of 12 steps decay.
PretrainConfig wsd_run(const TemporaryDirectory& directory, const std::string& name) {
  PretrainConfig config = tiny(directory, name);
  config.schedule = {.type = ScheduleType::kWsd,
                     .warmup_proportion = 0.25,
                     .decay_type = WsdDecay::kOneMinusSqrt,
                     .decay_proportion = 1.0 / 3};
  config.checkpoint_every = 4;
  config.keep_checkpoints = 100;
  return config;
}

PretrainConfig branch_of(const PretrainConfig& run, const std::string& directory, int64_t step) {
  PretrainConfig branch = run;
  branch.run_directory = directory;
  branch.initial_checkpoint = run.run_directory;
  branch.from_step = step;
  return branch;
}

std::string tensors_of(const PretrainConfig& config, int64_t step) {
  const std::string directory = checkpoint_directory(config.run_directory, step) + "/";
  return read_file(directory + kModelFile) + read_file(directory + kOptimizerFile);
}

}  // namespace

TEST_CASE("A branch with the same configuration equals the straight run to the bit", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig straight = wsd_run(directory, "straight");
  straight.precision = Precision::kFp16;  // the loss scale is a part of the state
  straight.amp.init_scale = 1024.0;
  straight.amp.growth_interval = 3;
  REQUIRE(pretrain(straight, false) == kOk);
  for (const int64_t step : {4, 8}) {
    CAPTURE(step);
    const PretrainConfig branch = branch_of(straight, directory.path("branch-" + std::to_string(step)), step);
    REQUIRE(pretrain(branch, false) == kOk);
    CHECK(tensors_of(branch, step) == tensors_of(straight, step));
    CHECK(tensors_of(branch, 12) == tensors_of(straight, 12));
    const CheckpointState a = load_checkpoint(checkpoint_directory(straight.run_directory, 12)).state,
                          b = load_checkpoint(checkpoint_directory(branch.run_directory, 12)).state;
    CHECK(a.consumed_samples == b.consumed_samples);
    CHECK(a.loss_scale == b.loss_scale);
    CHECK(a.growth_tracker == b.growth_tracker);
  }
}

TEST_CASE("A decay from any stable step is a branch that ends earlier, and goes on after a stop", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig stable = wsd_run(directory, "stable");
  stable.max_steps = 40;
  stable.schedule.warmup_proportion = 0.1;  // 4 steps
  stable.stop_at_step = 8;
  REQUIRE(pretrain(stable, false) == kOk);
  PretrainConfig decay = branch_of(stable, directory.path("decay"), 8);
  decay.max_steps = 12;
  decay.log_every = 1;
  decay.stop_at_step = 10;
  REQUIRE(pretrain(decay, false) == kOk);
  decay.stop_at_step = 0;
  REQUIRE(pretrain(decay, false) == kOk);
  // Steps 9 to 12 of lr (1 - sqrt(p)), p = 1/4, 1/2, 3/4 and 1.
  const double lr = decay.optimizer.lr;
  const double want[] = {lr * 0.5, lr * (1 - 0.70710678), lr * (1 - 0.86602540), 0};
  size_t seen = 0;
  for (const auto& line : testing::metrics_of(decay.run_directory)) {
    if (!line.contains("learning_rate")) continue;
    REQUIRE(seen < 4);
    CHECK(line["step"] == 9 + seen);
    CHECK(line["learning_rate"].get<double>() == testing::Approx(want[seen++]).epsilon(1e-6).margin(1e-12));
  }
  CHECK(seen == 4);
  CHECK(list_checkpoints(decay.run_directory).front().step == 8);
}

TEST_CASE("A branch at a step that is not kept, or with another seed, is refused", "[unit][trainer]") {
  const TemporaryDirectory directory;
  const PretrainConfig run = wsd_run(directory, "run");
  REQUIRE(pretrain(run, false) == kOk);
  PretrainConfig branch = branch_of(run, directory.path("branch"), 5);
  CHECK_THROWS_AS(pretrain(branch, false), InputMissing);
  CHECK_THROWS_WITH(pretrain(branch, false), Contains("from_step 5: the run initial_checkpoint ") &&
                                                 Contains("has checkpoints of the steps") && Contains("4, 8, 12"));
  branch.from_step = 8;
  branch.seed += 1;
  CHECK_THROWS_WITH(pretrain(branch, false), Contains("seed: was "));
  branch.seed -= 1;
  branch.max_tokens = 100;
  CHECK_THROWS_WITH(pretrain(branch, false), Contains("from_step: want less than ") && Contains("got 8"));
  branch.max_tokens = 1'000'000;
  branch.global_batch_size *= 2;
  CHECK_THROWS_WITH(pretrain(branch, false), Contains("the sizes of steps were others in "));
  branch.global_batch_size /= 2;
  branch.max_tokens = 0;
  std::filesystem::resize_file(checkpoint_directory(run.run_directory, 8) + "/" + kModelFile, 10);
  CHECK_THROWS_AS(pretrain(branch, false), DataError);
  CHECK(list_checkpoints(branch.run_directory).empty());
}

}  // namespace bert
