// The training loop, with its loaders, evaluations and ranks: a run of a few more steps costs the host no more than the
// copies of its batches, from pinned memory.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include <fstream>
#include <string>
#include <vector>

#include "app/distributed/group_end.h"
#include "app/distributed/process_group.h"
#include "app/finetune/finetuning_run.h"
#include "app/system/exit_codes.h"
#include "app/train/pretrain.h"
#include "app/train/step/training_step.h"
#include "tests/null_device/tests/step_testing.h"
#include "tests/support/device_under_test.h"
#include "tests/support/rank_processes.h"
#include "tests/support/tiny_distillation.h"
#include "tests/support/tiny_finetuning.h"
#include "tests/support/tiny_pretraining.h"
// Last, because it includes Catch2.
#include "tests/testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

/// The costs of a whole run that ends after `steps`.
template <class Config, class Run>
Costs costs_of_run(Config config, int64_t steps, Run&& run) {
  config.run_directory += "-" + std::to_string(steps);
  config.stop_at_step = steps;
  c10::cuda::CUDACachingAllocator::emptyCache();
  null_device::reset_counts();
  REQUIRE(run(config) == kOk);
  return costs();
}

/// What the steps after the first `steps` of a longer run cost. How much pinned memory a run takes depends on how far its
/// loader is ahead, so that does not count.
Costs difference(const Costs& more, const Costs& fewer) {
  return {.waits = more.waits - fewer.waits,
          .allocations = more.allocations - fewer.allocations,
          .host_allocations = 0,
          .pageable = more.pageable - fewer.pageable,
          .to_host = more.to_host - fewer.to_host,
          .from_pinned = more.from_pinned - fewer.from_pinned};
}

/// Settings under which nothing but steps happens between the first evaluation and the end.
template <class Config>
Config quiet(Config config) {
  config.device = DeviceChoice::kCuda;
  config.log_every = config.checkpoint_every = 0;
  config.evaluate_every = 3;
  config.report = {"jsonl"};
  config.amp.init_scale = 1024;
  return config;
}

/// Runs of four and five steps, with an evaluation after the third: what the fifth costs. A first run takes the memory
/// that the process keeps.
template <class Config, class Run>
Costs cost_of_step(const Config& config, Run&& run) {
  costs_of_run(config, 1, run);
  const Costs fewer = costs_of_run(config, 4, run), more = costs_of_run(config, 5, run);
  CHECK(fewer.waits > 0);
  return difference(more, fewer);
}

TEST_CASE("The loop of pre-training costs the host nothing between two stops", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  struct Case {
    const char *name, *precision, *masking;
    int64_t packed, micro_batches;
  };
  for (const Case& each : {Case{"fp32", "fp32", "static", 0, 2}, Case{"bf16, packed", "bf16", "static", 100, 1},
                           Case{"fp16, masks drawn", "fp16", "dynamic", 0, 2}}) {
    INFO(each.name);
    PretrainConfig config = quiet(tiny(directory, each.precision));
    config.precision = value_named<Precision>(each.precision).value();
    config.data.masking = value_named<Masking>(each.masking).value();
    config.micro_batch_tokens = each.packed;
    config.data.max_eval_examples = 8;
    const Costs step = cost_of_step(config, [](const PretrainConfig& c) { return pretrain(c, false); });
    const int64_t tensors = each.packed > 0 ? 9 : 8;  // a static batch says what counts in it
    CHECK(in_words(step) == in_words({.from_pinned = tensors * each.micro_batches}));
  }
}

TEST_CASE("The loop of fine-tuning costs the host nothing between two stops", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  const auto check = [](FinetuneConfig config) {
    INFO(config.run_directory);
    config = quiet(config);
    config.global_batch_size = 4;
    config.micro_batch_size = 2;
    config.max_steps = 6;
    const Costs step = cost_of_step(config, [](const FinetuneConfig& c) { return finetune(c, false); });
    constexpr int64_t kTensors = 6, kMicroBatches = 2;
    CHECK(in_words(step) == in_words({.from_pinned = kTensors * kMicroBatches}));
  };
  for (const char* task : {"ner", "squad-v1", "text-regression"}) {
    FinetuneConfig config = tiny_task_of(task, directory);
    config.precision = Precision::kBf16;
    check(config);
  }
  FinetuneConfig config = tiny_task_of("text-classification", directory);
  config.class_weights = ClassWeights::kBalanced;
  config.optimizer.average = GradientAverage::kMaskedTokens;
  check(config);
  check(tiny_distillation(directory, "student"));
}

/// Settings of the steps of ranks.
struct RankCase {
  const char *name, *precision, *compression, *average;
  bool sharded;
};
const std::vector<RankCase>& rank_cases() {
  static const std::vector<RankCase> cases = {{"plain", "bf16", "none", "micro_batches", false},
                                              {"sharded state", "fp32", "none", "masked_tokens", true},
                                              {"bf16 on the wire", "bf16-weights", "bf16", "masked_tokens", false},
                                              {"fp16 on the wire", "fp16", "fp16", "micro_batches", true}};
  return cases;
}

const TestProgram kCountsSteps("a rank whose steps are counted", [] {
  const auto rank = std::stoll(variable("RANK"));
  const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(rank));
  const c10::cuda::CUDAGuard on(device);
  const ProcessGroupPtr group =
      init_process_group({.init_method = variable("INIT"), .timeout_seconds = 120, .device = device});
  for (const RankCase& each : rank_cases()) {
    INFO(each.name);
    PretrainConfig config = tiny_step(each.precision);
    config.distributed.compression = value_named<GradientCompression>(each.compression).value();
    config.distributed.shard_optimizer_state = each.sharded;
    config.optimizer.average = value_named<GradientAverage>(each.average).value();
    TrainingStep step(config, device, group);
    step.broadcast_parameters();
    const auto batches_of = [&](int64_t number) { return random_micro_batches(2 * number + rank, 2); };
    const Costs spent = costs_after_third(step, batches_of);
    CHECK(in_words(spent) == in_words({.from_pinned = 2 * copies_of(batches_of(0))}));
    CHECK(null_device::count("collective") > 0);
    step.check_parameters();
  }
  barrier(group);
});

TEST_CASE("Steps of several ranks cost their hosts nothing", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  CHECK(run_ranks(kCountsSteps, 2, {{"INIT", "file://" + directory.path("store")}}) == std::vector<int>(2, 0));
}

const TestProgram kCountsRun("a rank whose run is counted", [] {
  PretrainConfig config = load_pretrain_config(variable("CONFIG"));
  REQUIRE(pretrain(config, false) == kOk);
  const Costs spent = costs();
  std::ofstream(variable("COSTS") + variable("RANK"))
      << spent.waits << " " << spent.allocations << " " << spent.pageable << " " << spent.to_host << " "
      << spent.from_pinned;
});

TEST_CASE("The loop of several ranks costs their hosts nothing between two stops", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  std::vector<std::vector<Costs>> of_runs;
  for (const int64_t steps : {4, 5}) {
    const std::string name = "run-" + std::to_string(steps);
    PretrainConfig config = quiet(tiny(directory, name));
    config.precision = Precision::kBf16;
    config.data.max_eval_examples = 8;
    config.stop_at_step = steps;
    config.distributed.init_method = "file://" + directory.path("store-" + name);
    const std::string file = directory.path(name + ".json"), found_costs = directory.path(name + "-costs");
    std::ofstream(file) << to_json(config);
    REQUIRE(run_ranks(kCountsRun, 2, {{"CONFIG", file}, {"COSTS", found_costs}}) == std::vector<int>(2, 0));
    std::vector<Costs>& of_ranks = of_runs.emplace_back();
    for (const char* rank : {"0", "1"}) {
      Costs& c = of_ranks.emplace_back();
      std::ifstream(found_costs + rank) >> c.waits >> c.allocations >> c.pageable >> c.to_host >> c.from_pinned;
    }
  }
  constexpr int64_t kTensors = 8, kMicroBatches = 1;
  for (size_t rank = 0; rank < 2; ++rank) {
    INFO("rank " << rank);
    CHECK(of_runs[0][rank].waits > 0);
    CHECK(in_words(difference(of_runs[1][rank], of_runs[0][rank])) ==
          in_words({.from_pinned = kTensors * kMicroBatches}));
  }
}

}  // namespace
