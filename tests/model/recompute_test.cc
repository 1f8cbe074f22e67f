// Gradient checkpointing: the same bits with less memory.
#include "model/recompute.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <utility>

#include "app/benchmark/random_batch.h"
#include "app/plan/memory.h"
#include "app/train/step/training_step.h"
#include "tests/support/allocations.h"
#include "tests/testing.h"

using namespace bert;
using torch::Tensor;

namespace {

constexpr int64_t kLayers = 4, kHidden = 32;

PretrainConfig tiny(const std::string& precision, bool checkpointing) {
  PretrainConfig config;
  config.precision = value_named<Precision>(precision).value();
  config.gradient_checkpointing = checkpointing;
  config.model = {.vocab_size = 64,
                  .hidden_size = kHidden,
                  .num_hidden_layers = kLayers,
                  .num_attention_heads = 2,
                  .intermediate_size = 4 * kHidden,
                  .max_position_embeddings = 64};
  return config;
}

PackedBatch batch_of(const std::vector<int64_t>& lengths, int64_t first_sequence) {
  return random_batch({.lengths = lengths, .vocab_size = 64, .first_sequence = first_sequence},
                      at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(first_sequence)));
}

}  // namespace

TEST_CASE("Recomputed layers give the same bits in every precision, with dropout and accumulation", "[unit][model]") {
  for (const std::string precision : {"fp32", "tf32", "bf16", "fp16", "bf16-weights", "fp16-weights", "fp8"}) {
    CAPTURE(precision);
    TrainingStep kept(tiny(precision, false), c10::kCPU, nullptr),
        recomputed(tiny(precision, true), c10::kCPU, nullptr);
    TrainingStep other_masks(tiny(precision, true), c10::kCPU, nullptr);
    other_masks.model->dropout_seed += 1;
    for (int64_t i = 0; i < 2; ++i) {
      const std::vector<PackedBatch> batches = {batch_of({12, 30, 7}, 6 * i), batch_of({5, 9, 64}, 6 * i + 3)};
      for (TrainingStep* step : {&kept, &recomputed, &other_masks}) step->run(batches);
      const auto want = kept.model->named_parameters(), got = recomputed.model->named_parameters(),
                 other = other_masks.model->named_parameters();
      int64_t different = 0;
      for (const auto& item : want) {
        INFO(item.key());
        CHECK(got[item.key()].grad().equal(item.value().grad()));
        CHECK(got[item.key()].equal(item.value()));
        if (!other[item.key()].grad().equal(item.value().grad())) ++different;
      }
      CHECK(different > 60);  // the twin: other masks, other gradients
    }
  }
}

TEST_CASE("Layers below which nothing is trained are run as they are", "[unit][model]") {
  const auto gradients = [](bool checkpointing) {
    torch::manual_seed(1);
    TrainingStep step(tiny("fp32", checkpointing), c10::kCPU, nullptr);
    for (const auto& item : step.model->named_parameters()) {
      const bool frozen = item.key().find("embeddings.") != std::string::npos ||
                          item.key().find("encoder.layer.0.") != std::string::npos;
      item.value().requires_grad_(!frozen);
    }
    const PackedBatch batch = batch_of({12, 30, 7}, 0);
    const PackedContext context{.cu_seqlens = batch.cu_seqlens,
                                .dropout_keys = batch.dropout_keys,
                                .max_seqlen = batch.max_seqlen,
                                .dropout_seed = 1,
                                .training = true};
    Tensor y = step.model->bert->encoder->forward(at::ones({batch.num_tokens(), kHidden}), context);
    y.square().sum().backward();
    return step.model->bert->encoder->named_parameters()["layer.1.attention.self.query.weight"].grad().clone();
  };
  CHECK(gradients(true).equal(gradients(false)));
}

TEST_CASE("A recomputed layer keeps its input alone", "[unit][model]") {
  // Note [Memory of a layer] in app/plan/memory.h states the elements a token that a layer keeps.
  const PackedBatch batch = batch_of({64, 64, 64, 64}, 0);
  const int64_t tokens = batch.num_tokens();
  for (const auto& [precision, bytes] : {std::pair("fp32", 4), std::pair("bf16-weights", 2)}) {
    CAPTURE(precision);
    std::array<int64_t, 2> live{}, peak{};
    for (const bool checkpointing : {false, true}) {
      PretrainConfig config = tiny(precision, checkpointing);
      config.model.hidden_dropout_prob = config.model.attention_probs_dropout_prob = 0;  // no masks to keep
      TrainingStep step(config, c10::kCPU, nullptr);
      const PackedContext context{.cu_seqlens = batch.cu_seqlens,
                                  .dropout_keys = batch.dropout_keys,
                                  .max_seqlen = batch.max_seqlen,
                                  .dropout_seed = 1,
                                  .training = true};
      const Tensor x = at::randn({tokens, kHidden}).to(bytes == 4 ? at::kFloat : at::kBFloat16).requires_grad_();
      Tensor y;
      live[checkpointing] =
          bert::testing::allocations_of([&] { y = step.model->bert->encoder->forward(x, context); })->live;
      peak[checkpointing] = bert::testing::allocations_of([&] { y.sum().backward(); })->peak;
    }
    CHECK(live[1] == kLayers * tokens * kHidden * bytes);
    const auto kept = static_cast<int64_t>(layer_bytes_per_token(tiny(precision, false).model, bytes));
    CHECK(live[0] == kLayers * tokens * kept);
    CHECK(live[1] + peak[1] < (live[0] + peak[0]) / 2);  // forward and backward together
  }
}

TEST_CASE("What a function keeps is as without recomputation", "[unit][model]") {
  const Tensor x = at::randn({8, 4}).requires_grad_(), weight = at::randn({4, 4}).requires_grad_(),
               frozen = at::randn({4});
  const auto layer = [&](const Tensor& input) { return at::tanh(at::matmul(input, weight) + frozen); };
  layer(x).sum().backward();
  const Tensor x_grad = x.grad().clone(), weight_grad = weight.grad().clone();
  x.mutable_grad() = weight.mutable_grad() = Tensor();

  const Tensor y = recompute_in_backward(x, {weight, frozen}, layer);
  CHECK(y.equal(layer(x)));
  const Tensor loss = y.sum();
  loss.backward(/*gradient=*/{}, /*retain_graph=*/true);
  CHECK(x.grad().equal(x_grad));
  CHECK(weight.grad().equal(weight_grad));
  loss.backward();  // accumulates
  CHECK(weight.grad().equal(weight_grad * 2));
  CHECK_THROWS_WITH(loss.backward(), bert::testing::Contains("backward through"));

  // An input without a gradient, and gradients of the parameters alone.
  weight.mutable_grad() = Tensor();
  recompute_in_backward(x.detach(), {weight, frozen}, layer).sum().backward();
  CHECK(weight.grad().equal(weight_grad));
  const at::NoGradGuard no_grad;
  CHECK_FALSE(recompute_in_backward(x, {weight, frozen}, layer).requires_grad());
}

TEST_CASE("Recomputation is under the autocast of forward, wherever backward is called", "[unit][model]") {
  const Tensor x = at::randn({8, 4}).requires_grad_(), weight = at::randn({4, 4}).requires_grad_();
  int calls = 0;
  const auto layer = [&](const Tensor& input) {
    ++calls;
    const Tensor y = at::matmul(input, weight);
    CHECK(y.scalar_type() == at::kBFloat16);
    return y;
  };
  Tensor y;
  {
    const AutocastGuard autocast(c10::kCPU, Precision::kBf16);
    y = recompute_in_backward(x, {weight}, layer);
    recompute_in_backward(x, {weight}, layer)
        .to(at::kFloat)
        .sum()
        .backward();  // inside of the scope: its cache has no gradients
    CHECK(weight.grad().count_nonzero().item<int64_t>() > 0);
  }
  const Tensor inside = weight.grad().clone();
  weight.mutable_grad() = Tensor();
  y.to(at::kFloat).sum().backward();
  CHECK(weight.grad().equal(inside));
  CHECK(calls == 4);
  CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  CHECK(at::autocast::is_autocast_cache_enabled());
}
