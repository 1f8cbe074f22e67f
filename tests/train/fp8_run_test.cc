// Runs in FP8: the layers that take part, where the scales come from and go to.
#include <torch/types.h>

#include <string>
#include <vector>

#include "app/benchmark/random_batch.h"
#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/files.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/train/pretrain.h"
#include "app/train/step/training_step.h"
#include "model/state_dict.h"
#include "tests/support/load_checkpoint.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;
using torch::Tensor;

PretrainConfig three_layers(Precision precision) {
  PretrainConfig config;
  config.precision = precision;
  config.model = {.vocab_size = 64,
                  .hidden_size = 32,
                  .num_hidden_layers = 3,
                  .num_attention_heads = 2,
                  .intermediate_size = 64,
                  .max_position_embeddings = 32};
  config.optimizer.average = GradientAverage::kMaskedTokens;
  return config;
}

PackedBatch batch_of(const std::vector<int64_t>& lengths, int64_t first_sequence, uint64_t seed) {
  return random_batch({.lengths = lengths, .vocab_size = 64, .first_sequence = first_sequence},
                      at::make_generator<at::CPUGeneratorImpl>(seed));
}

/// The greatest values of the last step, [layers, products, 3].
Tensor last_amaxes(const OptimizerStep& step) {
  return step.optimizer_state()["fp8.amax_history"][0].view({-1, 4, 3}).clone();
}

TEST_CASE("In training all products of all layers are in FP8, in evaluation none", "[unit][training_step]") {
  TrainingStep fp8(three_layers(Precision::kFp8), c10::kCPU, nullptr),
      bf16(three_layers(Precision::kBf16), c10::kCPU, nullptr);
  const PackedBatch batch = batch_of({12, 30, 7}, 0, 1);
  const auto logits = [&](TrainingStep& step) {
    const at::NoGradGuard no_grad;
    return step.forward(batch).mlm_logits;
  };
  CHECK_FALSE(logits(fp8).equal(logits(bf16)));
  fp8.module().eval();
  bf16.module().eval();
  CHECK(logits(fp8).equal(logits(bf16)));
  fp8.module().train();
  fp8.run(std::vector{batch});
  const Tensor amaxes = last_amaxes(fp8);
  CHECK(amaxes.sizes() == at::IntArrayRef({3, 4, 3}));
  CHECK((amaxes > 0).all().item<bool>());
  // The weights, each by itself: those of attention's output in the first layer.
  const TrainingStep fresh(three_layers(Precision::kFp8), c10::kCPU, nullptr);
  CHECK(amaxes[0][1][1].item<float>() ==
        state_dict(*fresh.model)["bert.encoder.layer.0.attention.output.dense.weight"].abs().max().item<float>());
}

TEST_CASE("With first_last_layers_bf16 the layers between them are in FP8", "[unit][training_step]") {
  PretrainConfig config = three_layers(Precision::kFp8);
  config.first_last_layers_bf16 = true;
  TrainingStep step(config, c10::kCPU, nullptr);
  step.run(std::vector{batch_of({12, 30, 7}, 0, 1)});
  const Tensor amaxes = last_amaxes(step);
  CHECK((amaxes[1] > 0).all().item<bool>());
  CHECK((amaxes[0] == 0).all().item<bool>());
  CHECK((amaxes[2] == 0).all().item<bool>());
  config.model.num_hidden_layers = 2;
  CHECK_THROWS_AS(TrainingStep(config, c10::kCPU, nullptr), ConfigError);
  CHECK_THROWS_WITH(TrainingStep(config, c10::kCPU, nullptr), Contains("the model has 2 layers"));
}

TEST_CASE("The scales of a step are those of its greatest values, whatever the micro-batches are",
          "[unit][training_step]") {
  const PackedBatch first = batch_of({12, 30}, 0, 1), second = batch_of({7, 20}, 2, 2);
  TrainingStep one(three_layers(Precision::kFp8), c10::kCPU, nullptr),
      both(three_layers(Precision::kFp8), c10::kCPU, nullptr),
      turned(three_layers(Precision::kFp8), c10::kCPU, nullptr);
  one.run(std::vector{first});
  both.run(std::vector{first, second});
  turned.run(std::vector{second, first});
  const Tensor amaxes = last_amaxes(both), of_one = last_amaxes(one);
  CHECK(amaxes.equal(last_amaxes(turned)));
  CHECK((amaxes.slice(2, 0, 2) >= of_one.slice(2, 0, 2)).all().item<bool>());
  CHECK_FALSE(amaxes.equal(of_one));
  const Tensor scales = both.optimizer_state()["fp8.scales"].view({3, 4, 2, 3});
  CHECK(scales[2][0][0][0].item<float>() == 448.0F / amaxes[2][0][0].item<float>());
  CHECK(scales[1][3][0][2].item<float>() == 57344.0F / amaxes[1][3][2].item<float>());
}

TEST_CASE("A run in bf16 goes on in FP8 with scales of 1, and back", "[unit][trainer]") {
  const testing::TemporaryDirectory directory;
  PretrainConfig config = testing::tiny(directory, "run");
  const auto state_of = [&](int64_t step) {
    return testing::load_checkpoint(checkpoint_directory(config.run_directory, step)).optimizer;
  };
  config.precision = Precision::kBf16;
  config.stop_at_step = 4;
  REQUIRE(pretrain(config, false) == kOk);
  CHECK(state_of(4).find("fp8.scales") == nullptr);
  config.precision = Precision::kFp8;
  config.stop_at_step = 8;
  REQUIRE(pretrain(config, /*allow_config_change=*/true) == kOk);
  const Tensor history = state_of(8)["fp8.amax_history"];
  CHECK((history.slice(0, 0, 4) > 0).all().item<bool>());
  CHECK((history.slice(0, 4) == 0).all().item<bool>());
  config.precision = Precision::kBf16;
  config.stop_at_step = 12;
  REQUIRE(pretrain(config, /*allow_config_change=*/true) == kOk);
  CHECK(state_of(12).find("fp8.scales") == nullptr);
  // Another run starts from the weights and moments of a run in FP8, without its scales.
  PretrainConfig next = testing::tiny(directory, "next");
  next.initial_checkpoint = checkpoint_directory(config.run_directory, 8);
  next.initial_optimizer_state = true;
  next.precision = Precision::kFp8;
  next.max_steps = 1;
  REQUIRE(pretrain(next, false) == kOk);
}

}  // namespace
}  // namespace bert
