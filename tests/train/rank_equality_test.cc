// Any number of ranks trains like one process: the same sequences, weights and skipped steps.
#include <torch/types.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "app/checkpoint/checkpoint.h"
#include "app/distributed/process_group.h"
#include "app/train/step/training_step.h"
#include "data/io/files.h"
#include "data/loader/dataloader.h"
#include "model/state_dict.h"
#include "tests/support/rank_processes.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::run_ranks;
using bert::testing::TemporaryDirectory;
using bert::testing::TestProgram;
using bert::testing::tiny;
using bert::testing::variable;

namespace {

/// The settings of a case. Its rank processes get them as words between spaces.
struct Case {
  std::string type = "lamb", precision = "fp64", compression = "none", average = "micro_batches";
  bool sharded = false;
  int64_t micro_batch_size = 1;
  bool checkpointing = false;  // gradient_checkpointing

  [[nodiscard]] std::string text() const {
    return type + " " + precision + " " + compression + " " + average + " " + (sharded ? "1" : "0") + " " +
           std::to_string(micro_batch_size) + " " + (checkpointing ? "1" : "0");
  }
  static Case parse(const std::string& text) {
    Case c;
    std::istringstream(text) >> c.type >> c.precision >> c.compression >> c.average >> c.sharded >>
        c.micro_batch_size >> c.checkpointing;
    return c;
  }
};

/// True if the first steps are to overflow and be skipped. False if gradients travel in fp16: there they overflow at a
/// scale at which those of one process, which sends none, do not.
bool overflows(const Case& c) { return c.precision == "fp16" && c.compression == "none"; }

PretrainConfig config_of(const Case& c, const std::string& train) {
  PretrainConfig config;
  config.data.train = {train};
  config.model = {.vocab_size = bert::testing::kVocabulary,
                  .hidden_size = 16,
                  .num_hidden_layers = 1,
                  .num_attention_heads = 2,
                  .intermediate_size = 32,
                  .max_position_embeddings = bert::testing::kLength};
  config.model.hidden_dropout_prob = config.model.attention_probs_dropout_prob = 0.1;
  config.precision = value_named<Precision>(c.precision).value_or(Precision::kFp32);  // fp64: of the weights
  config.max_steps = 20;
  config.global_batch_size = 12;
  config.micro_batch_size = c.micro_batch_size;
  config.optimizer.type = value_named<OptimizerType>(c.type).value();
  config.optimizer.average = value_named<GradientAverage>(c.average).value();
  config.optimizer.lr = 2e-3;
  config.schedule.warmup_proportion = 0.1;
  config.amp.init_scale = overflows(c) ? 65536.0 * 256.0 : 1024.0;
  config.amp.growth_interval = overflows(c) ? 5 : config.max_steps;
  config.distributed.compression = value_named<GradientCompression>(c.compression).value();
  config.distributed.shard_optimizer_state = c.sharded;
  config.gradient_checkpointing = c.checkpointing;
  return config;
}

struct Result {
  StateDict weights;
  std::vector<int64_t> applied;  // number of applied steps after every step
  std::vector<double> losses;
};

Result train(const PretrainConfig& config, const Case& c, const ProcessGroupPtr& group) {
  const auto shards = std::make_shared<const PretrainingShards>(config.data.train);
  PretrainingDataLoader loader(shards, {.micro_batch_size = config.micro_batch_size,
                                        .seed = 7,
                                        .rank = get_rank(group),
                                        .world_size = get_world_size(group),
                                        .global_batch_size = config.global_batch_size});
  TrainingStep step(config, c10::kCPU, group,
                    c.precision == "fp64" ? std::optional(torch::kDouble) : std::optional<torch::ScalarType>());
  step.broadcast_parameters();
  Result result;
  for (int64_t i = 0; i < config.max_steps; ++i) {
    step.run(loader.next_step());
    const auto loss = step.take_mean_loss();
    result.losses.push_back(loss.mlm + loss.nsp);
    result.applied.push_back(step.applied_steps());
  }
  step.check_parameters();
  for (const auto& item : state_dict(*step.model)) result.weights.insert(item.key(), item.value().detach().clone());
  return result;
}

/// The largest |a - b| over all weights, relative to the largest |a| of the tensor.
double distance(const StateDict& a, const StateDict& b) {
  double worst = 0;
  for (const auto& item : a) {
    const torch::Tensor want = item.value().to(torch::kDouble), got = b[item.key()].to(torch::kDouble);
    worst = std::max(worst, ((want - got).abs().max() / want.abs().max().clamp_min(1e-3)).item<double>());
  }
  return worst;
}

const TestProgram kTrains("a rank of rank_equality_test", [] {
  const Case c = Case::parse(variable("CASE"));
  const std::string out = variable("OUT");
  const ProcessGroupPtr group = init_process_group({.init_method = "file://" + out + ".store", .timeout_seconds = 60});
  const Result result = train(config_of(c, variable("TRAIN")), c, group);
  REQUIRE(result.losses.size() == 20);
  if (get_rank(group) == 0) {
    save_safetensors(out + ".safetensors", result.weights);
    AtomicFile report(out + ".json");
    report.write(nlohmann::json({{"applied", result.applied}, {"losses", result.losses}}).dump());
    report.commit();
  }
  barrier(group);
});

/// Checks that weights and losses are within `tolerance` of those of one process, and that weights differ by at least
/// `least`.
void expect_equal(const Case& c, const std::vector<int>& rank_counts, double tolerance, double least = 0) {
  const TemporaryDirectory directory;
  const PretrainConfig config = config_of(c, tiny(directory, "run").data.train.front());
  const Result one = train(config, c, nullptr);
  CHECK((one.applied.back() < config.max_steps) == overflows(c));
  CHECK(one.applied.back() >= config.max_steps / 2);
  for (const int ranks : rank_counts) {
    CAPTURE(c.text(), ranks);
    const std::string out = directory.path("ranks-" + std::to_string(ranks));
    const auto codes =
        run_ranks(kTrains, ranks, {{"CASE", c.text()}, {"TRAIN", config.data.train.front()}, {"OUT", out}});
    REQUIRE(codes == std::vector<int>(static_cast<size_t>(ranks), 0));
    const double worst = distance(one.weights, read_safetensors(out + ".safetensors"));
    CHECK(worst <= tolerance);
    CHECK(worst >= (ranks > 1 ? least : 0));
    const auto report = nlohmann::json::parse(read_file(out + ".json"));
    CHECK(report["applied"].get<std::vector<int64_t>>() == one.applied);
    const auto losses = report["losses"].get<std::vector<double>>();
    REQUIRE(losses.size() == one.losses.size());
    for (size_t i = 0; i < losses.size(); ++i) {
      CHECK(losses[i] == bert::testing::Approx(one.losses[i]).epsilon(std::max(tolerance, 1e-6)));  // losses are fp32
    }
  }
}

}  // namespace

TEST_CASE("2, 3 and 4 ranks train as one does, to 1e-6 in double with dropout and accumulation",
          "[distributed][trainer]") {
  expect_equal({}, {2}, 1e-6);
  expect_equal({.sharded = true, .checkpointing = true}, {3}, 1e-6);
  expect_equal({.type = "adamw", .average = "masked_tokens", .sharded = true}, {4}, 1e-6);
}

TEST_CASE("2, 3 and 4 ranks train as one does, with every optimizer, average, sharding and checkpointing", "[slow]") {
  for (const char* type : {"lamb", "adamw"}) {
    for (const char* average : {"micro_batches", "masked_tokens"}) {
      for (const bool sharded : {false, true}) {
        for (const bool checkpointing : {false, true}) {
          expect_equal({.type = type, .average = average, .sharded = sharded, .checkpointing = checkpointing},
                       {2, 3, 4}, 1e-6);
        }
      }
    }
  }
}

TEST_CASE("2, 3 and 4 ranks train as one does in fp32 and fp16, sharded or not", "[slow]") {
  for (const bool sharded : {false, true}) {
    expect_equal({.precision = "fp32", .sharded = sharded}, {2, 3, 4}, 1e-4);
    expect_equal({.precision = "fp16", .sharded = sharded}, {2, 3, 4}, 1e-3);
  }
}

TEST_CASE("Ranks with different numbers of micro-batches train as one does", "[distributed][trainer]") {
  expect_equal({.micro_batch_size = 3}, {3}, 1e-6);  // 4 micro-batches: the ranks get 2, 1 and 1
}

TEST_CASE("Ranks train as one does to 1e-4 in fp32, and skip the same steps in fp16", "[distributed][trainer]") {
  expect_equal({.precision = "fp32"}, {2}, 1e-4);
  for (const bool sharded : {false, true})
    expect_equal({.precision = "fp16", .sharded = sharded}, {3}, 1e-3);  // one rounding of a weight in fp16 is 5e-4
}

TEST_CASE("2 ranks with a micro-batch each leave the bits of one with both, in fp8", "[distributed][trainer]") {
  expect_equal({.precision = "fp8", .micro_batch_size = 6}, {2}, 0);
  expect_equal({.precision = "fp8", .average = "masked_tokens", .sharded = true, .micro_batch_size = 6}, {2}, 0);
}

// LAMB gives the update of each tensor a fixed length, so a rounded direction has its full effect. bf16 has 8 bits.
TEST_CASE("Ranks that send their gradients in 16 bits train as one does, to the rounding", "[distributed][trainer]") {
  expect_equal({.compression = "bf16"}, {2}, 4e-2, 1e-7);
  expect_equal({.precision = "fp16", .compression = "fp16"}, {2}, 1e-2, 1e-7);
}

TEST_CASE("1 to 4 ranks train as one does, also with gradients in bf16", "[slow]") {
  expect_equal({}, {1, 2, 3, 4}, 1e-6);
  expect_equal({.compression = "bf16"}, {1, 2, 3, 4}, 4e-2, 1e-7);
}
