// The end of a run by tokens, epochs and hours, and steps that grow.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/files.h"
#include "app/system/exit_codes.h"
#include "app/train/pretrain.h"
#include "data/formats/shard.h"
#include "data/io/files.h"
#include "tests/support/lines.h"
#include "tests/support/load_checkpoint.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Approx;
using testing::load_checkpoint;
using testing::metrics_of;
using testing::TemporaryDirectory;
using testing::tiny;

std::string tensors_of(const PretrainConfig& config, int64_t step) {
  const std::string directory = checkpoint_directory(config.run_directory, step) + "/";
  return read_file(directory + kModelFile) + read_file(directory + kOptimizerFile);
}

CheckpointState newest_state(const PretrainConfig& config) {
  return load_checkpoint(list_checkpoints(config.run_directory).back().directory).state;
}

PretrainConfig growing(const TemporaryDirectory& directory, const std::string& run) {
  PretrainConfig config = tiny(directory, run);
  config.batch_size_schedule = {{.after_steps = 5, .after_tokens = 0, .global_batch_size = 16},
                                {.after_steps = 9, .after_tokens = 0, .global_batch_size = 32}};
  config.checkpoint_every = 0;
  config.log_every = 1;
  return config;
}

}  // namespace

TEST_CASE("A run ends with its epochs or its tokens, and its schedule with it", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig epochs = tiny(directory, "epochs");  // 300 examples, 8 in a step
  epochs.max_steps = 1000;
  epochs.num_train_epochs = 0.25;
  REQUIRE(pretrain(epochs, false) == kOk);
  PretrainConfig steps = tiny(directory, "steps");
  steps.max_steps = 10;  // 75 / 8, rounded up
  REQUIRE(pretrain(steps, false) == kOk);
  CHECK(tensors_of(epochs, 10) == tensors_of(steps, 10));

  PretrainConfig tokens = epochs;
  tokens.run_directory = directory.path("tokens");
  tokens.num_train_epochs = 0;
  tokens.max_tokens = std::llround(75 * PretrainingShards({directory.path("train.shard")}).mean_length());
  REQUIRE(pretrain(tokens, false) == kOk);
  CHECK(tensors_of(tokens, 10) == tensors_of(steps, 10));
  REQUIRE(pretrain(tokens, false) == kOk);  // it is finished, and says so
  CHECK(newest_state(tokens).step == 10);
}

TEST_CASE("Steps grow at their place, also after a stop within them and in other micro-batches", "[unit][trainer]") {
  const TemporaryDirectory directory;
  const PretrainConfig straight = growing(directory, "straight");
  REQUIRE(pretrain(straight, false) == kOk);
  CHECK(newest_state(straight).consumed_samples == 5 * 8 + 4 * 16 + 3 * 32);
  std::vector<double> sizes;
  for (const auto& line : metrics_of(straight.run_directory)) sizes.push_back(line["sequences_per_step"]);
  CHECK(sizes == std::vector<double>{8, 8, 8, 8, 8, 16, 16, 16, 16, 32, 32, 32});

  PretrainConfig stopped = growing(directory, "stopped");
  for (const int64_t step : {5, 7, 10, 0}) {
    stopped.stop_at_step = step;
    REQUIRE(pretrain(stopped, false) == kOk);
  }
  CHECK(tensors_of(stopped, 12) == tensors_of(straight, 12));

  // 40 sequences have been used before the sixth step, 104 before the tenth.
  PretrainConfig by_tokens = growing(directory, "tokens");
  const double mean = PretrainingShards({directory.path("train.shard")}).mean_length();
  by_tokens.batch_size_schedule[0] = {
      .after_steps = 0, .after_tokens = std::llround(39.5 * mean), .global_batch_size = 16};
  by_tokens.batch_size_schedule[1] = {
      .after_steps = 0, .after_tokens = std::llround(100 * mean), .global_batch_size = 32};
  REQUIRE(pretrain(by_tokens, false) == kOk);
  CHECK(tensors_of(by_tokens, 12) == tensors_of(straight, 12));

  PretrainConfig small = growing(directory, "small");
  small.micro_batch_size = 2;
  small.optimizer.average = GradientAverage::kMaskedTokens;
  PretrainConfig large = small;
  large.run_directory = directory.path("large");
  large.micro_batch_size = 8;
  for (const PretrainConfig& config : {small, large}) REQUIRE(pretrain(config, false) == kOk);
  CHECK(newest_state(small).consumed_samples == newest_state(large).consumed_samples);
  const auto a = metrics_of(small.run_directory), b = metrics_of(large.run_directory);
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i)
    CHECK(a[i]["loss"].get<double>() == Approx(b[i]["loss"].get<double>()).epsilon(1e-4));
}

TEST_CASE("A run ends by the hour, with its decay, and goes on with its clock", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig run = tiny(directory, "constant");
  run.max_steps = 1000000;
  run.checkpoint_every = 0;
  run.log_every = 1;
  run.schedule = {.type = ScheduleType::kConstant, .warmup_proportion = 0};
  run.max_hours = 1.0 / 3600;
  REQUIRE(pretrain(run, false) == kOk);
  const CheckpointState end = newest_state(run);
  CHECK(end.step >= 1);
  CHECK(end.step < run.max_steps);
  CHECK(end.clock.seconds >= 1);
  CHECK(end.clock.seconds < 60);
  REQUIRE(pretrain(run, false) == kOk);  // the hour is over
  CHECK(newest_state(run).step == end.step);

  PretrainConfig decay = run;
  decay.run_directory = directory.path("wsd");
  decay.schedule = {.type = ScheduleType::kWsd, .warmup_proportion = 2e-6, .decay_proportion = 0.5};  // 2 steps
  decay.checkpoint_every = 1;
  decay.keep_checkpoints = 100000;
  decay.max_hours = 1;
  decay.stop_at_step = 2;
  REQUIRE(pretrain(decay, false) == kOk);
  CHECK(newest_state(decay).clock.decay_end == 0);
  decay.max_hours = 2 * (newest_state(decay).clock.seconds + 1) / 3600;  // it decays after a second more
  decay.stop_at_step = 0;
  REQUIRE(pretrain(decay, false) == kOk);
  const CheckpointState last = newest_state(decay);
  CHECK(last.clock.decay_begin > 2);
  CHECK(last.clock.decay_end == 2 * last.clock.decay_begin);  // as many steps as before
  CHECK(last.step == last.clock.decay_end);
  const auto rate_of = [&](int64_t step) {
    for (const auto& line : metrics_of(decay.run_directory)) {
      if (line["step"] == step) return line["learning_rate"].get<double>();
    }
    return -1.0;
  };
  const auto begin = static_cast<double>(last.clock.decay_begin);
  CHECK(rate_of(1) == Approx(decay.optimizer.lr / 2).epsilon(1e-6));
  CHECK(rate_of(last.clock.decay_begin) == Approx(decay.optimizer.lr).epsilon(1e-6));
  CHECK(rate_of(last.clock.decay_begin + 1) == Approx(decay.optimizer.lr * (1 - 1 / begin)).epsilon(1e-6));
  CHECK(rate_of(last.step) == 0);

  // A decay that was stopped goes on as it was.
  const std::string want = tensors_of(decay, last.step);
  for (const CheckpointEntry& entry : list_checkpoints(decay.run_directory)) {
    if (entry.step > last.clock.decay_begin + 1) std::filesystem::remove_all(entry.directory);
  }
  REQUIRE(pretrain(decay, false) == kOk);
  CHECK(newest_state(decay).step == last.step);
  CHECK(tensors_of(decay, last.step) == want);
}

TEST_CASE("The warm-up of a run by the hour takes its share of the hours, also after a stop", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig run = tiny(directory, "run");
  run.max_steps = 1000000;
  run.checkpoint_every = 1;
  run.keep_checkpoints = 100000;
  run.log_every = 1;
  run.schedule = {.type = ScheduleType::kWsd, .warmup_proportion = 0.4, .decay_proportion = 0.2};
  run.max_hours = 3.0 / 3600;
  REQUIRE(pretrain(run, false) == kOk);
  const RunClock clock = newest_state(run).clock;
  REQUIRE(clock.warmup_end > 0);
  CHECK(clock.warmup_end < clock.decay_end);
  const auto check_rates = [&] {
    const int64_t begin = newest_state(run).clock.decay_begin;
    double most = 0;
    for (const auto& line : metrics_of(run.run_directory)) {
      const int64_t step = line["step"];
      const double share = line["learning_rate"].get<double>() / run.optimizer.lr;
      CAPTURE(step);
      most = std::max(most, share);
      if (step == 1) CHECK(share < 1e-4);  // the number of steps is not known
      if (step > clock.warmup_end && step <= begin) CHECK(share == Approx(1));
      if (step + 1 == clock.warmup_end && step < begin && share > 1e-4)
        CHECK(share == Approx(1 - 1 / static_cast<double>(clock.warmup_end)));
      if (step == newest_state(run).step) CHECK(share == 0);
    }
    CHECK(most == Approx(1));
  };
  check_rates();
  for (const CheckpointEntry& entry : list_checkpoints(run.run_directory)) {
    const bool known = load_checkpoint(entry.directory).state.clock.warmup_end > 0;
    if (known && entry.step >= clock.warmup_end / 2) std::filesystem::remove_all(entry.directory);
  }
  const int64_t kept = newest_state(run).clock.warmup_end;
  REQUIRE(pretrain(run, false) == kOk);
  if (kept > 0) {  // it was decided before the stop
    CHECK(newest_state(run).clock.warmup_end == clock.warmup_end);
    check_rates();
  }
}

}  // namespace bert
