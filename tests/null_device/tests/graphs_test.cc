// A whole step of training in a CUDA graph: replays on other batches leave the bits that eager steps leave.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>

#include <string>
#include <utility>
#include <vector>

#include "app/device/determinism.h"
#include "app/train/step/training_step.h"
#include "model/state_dict.h"
#include "tests/null_device/tests/step_testing.h"
#include "tests/support/device_under_test.h"
#include "tests/testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

/// A step whose batches always lie at the same addresses, as a graph needs them.
class FixedStep {
 public:
  FixedStep(const PretrainConfig& config, c10::Device device, int64_t micro_batches)
      : step(config, device, nullptr), seed_(config.seed), batches_(moved(batches_of(0, micro_batches), device)) {}

  /// Batches of one shape. A capture must not change the generator's seed, which the number of the first sequence gives:
  /// so all micro-batches of a step have the same. The masks of hidden dropout follow from the keys.
  static std::vector<PackedBatch> batches_of(int64_t number, int64_t micro_batches) {
    std::vector<PackedBatch> batches = random_micro_batches(number, micro_batches);
    for (PackedBatch& batch : batches) batch.first_sequence = batches.front().first_sequence;
    return batches;
  }

  void load(int64_t number) {
    const std::vector<PackedBatch> from = batches_of(number, std::ssize(batches_));
    for (size_t i = 0; i < from.size(); ++i) {
      std::vector<at::Tensor> sources;
      PackedBatch::visit_tensors(from[i], [&](const at::Tensor& tensor) { sources.push_back(tensor); });
      size_t next = 0;
      PackedBatch::visit_tensors(batches_[i], [&](at::Tensor& tensor) {
        if (tensor.defined()) tensor.copy_(sources[next]);
        ++next;
      });
      batches_[i].first_sequence = from[i].first_sequence;
    }
  }
  void run() { step.run(batches_); }
  void run(int64_t number) {
    load(number);
    run();
  }
  void capture() {
    graph_.capture_begin();
    run();
    graph_.capture_end();
  }
  void replay(int64_t number) {
    load(number);
    graph_.replay();
  }
  /// As an eager step does it before its forward.
  void seed() {
    seed_for_micro_batch(at::globalContext().defaultGenerator(step.device()), seed_, batches_.front().first_sequence);
  }

  TrainingStep step;

 private:
  int64_t seed_;
  std::vector<PackedBatch> batches_;
  at::cuda::CUDAGraph graph_;
};

/// The first tensor of two steps that differs in a bit; empty if none does.
std::string difference(const TrainingStep& a, const TrainingStep& b) {
  const auto compare = [](const StateDict& x, const StateDict& y) -> std::string {
    for (const auto& item : x) {
      const at::Tensor got = item.value().cpu(), want = y[item.key()].cpu();
      if (!got.equal(want)) return item.key();
    }
    return x.keys() == y.keys() ? "" : "the names";
  };
  for (const std::string& found : {compare(state_dict(*a.model), state_dict(*b.model)),
                                   compare(a.optimizer->state_dict(), b.optimizer->state_dict()),
                                   compare(a.scaler.state_dict(), b.scaler.state_dict())}) {
    if (!found.empty()) return found;
  }
  return "";
}

/// A stream of the pool, which can be captured, and that waits for what was done before.
class PoolStream {
 public:
  PoolStream() : guard_(c10::cuda::getStreamFromPool()) {}
  ~PoolStream() { c10::cuda::getCurrentCUDAStream().synchronize(); }
  PoolStream(const PoolStream&) = delete;
  PoolStream& operator=(const PoolStream&) = delete;

 private:
  c10::cuda::CUDAStreamGuard guard_;
};

constexpr int64_t kWarmUp = 3, kReplays = 3;

/// Three eager steps, a capture, three replays; beside them eager steps on the same batches. With `seeded`, the generator
/// gets the state before each replay that it has in an eager step.
std::string difference_after_replays(const PretrainConfig& config, int64_t micro_batches, c10::Device device,
                                     bool seeded = false) {
  const PoolStream stream;
  FixedStep captured(config, device, micro_batches), eager(config, device, micro_batches);
  for (int64_t number = 0; number < kWarmUp; ++number) {
    captured.run(number);
    eager.run(number);
  }
  const int64_t before = null_device::count("captured");
  captured.capture();
  CHECK(null_device::count("captured") > before);
  CHECK(difference(captured.step, eager.step).empty());  // a capture does nothing
  for (int64_t number = kWarmUp; number < kWarmUp + kReplays; ++number) {
    captured.load(number);
    if (seeded) captured.seed();
    captured.replay(number);
    eager.run(number);
  }
  CHECK(captured.step.applied_steps() == eager.step.applied_steps());
  return difference(captured.step, eager.step);
}

PretrainConfig graph_config(const std::string& precision, double hidden_dropout, double attention_dropout) {
  PretrainConfig config = tiny_step(precision);
  config.model.hidden_dropout_prob = hidden_dropout;
  config.model.attention_probs_dropout_prob = attention_dropout;
  config.optimizer.max_grad_norm = 0.1;  // every step clips
  config.optimizer.average = GradientAverage::kMaskedTokens;
  config.optimizer.ema_decay = 0.9;
  config.amp.growth_interval = 2;  // the loss scale grows in a replay
  return config;
}

TEST_CASE("A captured step leaves the bits of eager steps, in every precision", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  for (const char* precision : {"fp32", "tf32", "bf16", "bf16-weights", "fp16"}) {
    for (const double dropout : {0.0, 0.1}) {
      INFO(precision << ", hidden dropout " << dropout);
      CHECK(difference_after_replays(graph_config(precision, dropout, 0.0), 2, device) == "");
    }
  }
}

TEST_CASE("A captured step that overflows is skipped in its replay", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  PretrainConfig config = graph_config("fp16", 0.1, 0.0);
  config.amp.init_scale = 4294967296.0;  // 2^32; from 2^27 on steps fit or not as in eager steps
  CHECK(difference_after_replays(config, 2, device) == "");
}

TEST_CASE("Attention's dropout in a captured step is that of an eager step if the seed is set", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  for (const char* precision : {"fp32", "bf16", "fp16"}) {
    INFO(precision);
    CHECK(difference_after_replays(graph_config(precision, 0.1, 0.25), 1, device, /*seeded=*/true) == "");
  }
  CHECK_FALSE(difference_after_replays(graph_config("bf16", 0.1, 0.25), 1, device).empty());
}

TEST_CASE("Replays of a captured step draw new masks for attention's dropout", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const PoolStream stream;
  for (const double attention_dropout : {0.0, 0.25}) {
    PretrainConfig config = graph_config("bf16", 0.1, attention_dropout);
    config.optimizer.lr = 0;  // all steps have the same weights
    FixedStep captured(config, device, 1);
    for (int64_t i = 0; i < kWarmUp; ++i) captured.run(0);
    captured.capture();
    const auto gradients_of_replay = [&] {
      captured.replay(0);
      std::vector<at::Tensor> gradients;
      for (const NamedParameter& parameter : captured.step.parameters())
        gradients.push_back(parameter.tensor.grad().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true).flatten());
      return at::cat(gradients);
    };
    const at::Tensor first = gradients_of_replay(), second = gradients_of_replay(), third = gradients_of_replay();
    CHECK(first.equal(second) == (attention_dropout == 0.0));
    CHECK(second.equal(third) == (attention_dropout == 0.0));
    CHECK(first.equal(third) == (attention_dropout == 0.0));
  }
}

}  // namespace
