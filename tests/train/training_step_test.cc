// Things that a training step must not do: wait for the device, or request new sizes from the allocator once shapes
// repeat.
#include "app/train/step/training_step.h"

#include <ATen/record_function.h>
#include <torch/types.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>
#include <vector>

#include "app/benchmark/random_batch.h"
#include "app/system/errors.h"
#include "model/state_dict.h"
#include "tests/bench/plain_operators.h"
#include "tests/support/allocations.h"
#include "tests/testing.h"

using namespace bert;

namespace {

PretrainConfig tiny(const std::string& precision, const std::string& optimizer,
                    const std::string& average = "micro_batches") {
  PretrainConfig config;
  config.precision = value_named<Precision>(precision).value();
  config.optimizer.type = value_named<OptimizerType>(optimizer).value();
  config.optimizer.average = value_named<GradientAverage>(average).value();
  config.model = {.vocab_size = 64,
                  .hidden_size = 32,
                  .num_hidden_layers = 2,
                  .num_attention_heads = 2,
                  .intermediate_size = 64,
                  .max_position_embeddings = 32};
  return config;
}

std::vector<PackedBatch> micro_batches(int64_t step, c10::Device device) {
  std::vector<PackedBatch> result;
  for (int64_t micro = 0; micro < 2; ++micro) {
    result.push_back(random_batch({.lengths = {12, 30, 7}, .vocab_size = 64, .first_sequence = 6 * step + 3 * micro},
                                  at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(step)))
                         .to(device));
  }
  return result;
}

/// Records calls of the given operators. Calls inside an operator of this project count only if `inside_ours` is true.
class Calls {
 public:
  explicit Calls(std::vector<std::string_view> watched, bool inside_ours = false) {
    state() = {.watched = std::move(watched), .inside_ours = inside_ours};
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(enter, leave).scopes({at::RecordScope::FUNCTION}));
  }
  ~Calls() { at::removeCallback(handle_); }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  [[nodiscard]] const std::vector<std::string>& names() const { return state().found; }
  [[nodiscard]] const std::set<std::string>& ours() const { return state().ours; }

 private:
  struct State {
    std::vector<std::string_view> watched;
    bool inside_ours = false;
    std::vector<std::string> found = {};
    std::set<std::string> ours = {};  // names of operators that were called
    int depth = 0;
  };
  static bool is_ours(const at::RecordFunction& call) { return std::string_view(call.name()).starts_with("bert::"); }
  static std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& call) {
    State& now = state();
    if ((now.depth == 0 || now.inside_ours) && std::ranges::find(now.watched, call.name()) != now.watched.end())
      now.found.emplace_back(call.name());
    if (is_ours(call)) {
      ++now.depth;
      now.ours.insert(call.name());
    }
    return nullptr;
  }
  static void leave(const at::RecordFunction& call, at::ObserverContext* /*context*/) {
    if (is_ours(call)) --state().depth;
  }
  static State& state() {
    static State value;
    return value;
  }
  at::CallbackHandle handle_;
};

/// Operators for which the host waits for a device: reads of a value, and operators whose result has a data-dependent
/// size. (On the CPU kernels read their own scalars.)
const std::vector<std::string_view> kWaits = {"aten::_local_scalar_dense", "aten::is_nonzero", "aten::nonzero",
                                              "aten::masked_select",       "aten::equal",      "aten::_unique2"};

/// ATen operators that operators of this project replace, forward and backward.
const std::vector<std::string_view> kReplaced = {"aten::layer_norm",
                                                 "aten::native_layer_norm",
                                                 "aten::native_layer_norm_backward",
                                                 "aten::gelu",
                                                 "aten::gelu_backward",
                                                 "aten::dropout",
                                                 "aten::native_dropout",
                                                 "aten::native_dropout_backward",
                                                 "aten::bernoulli_",
                                                 "aten::softmax",
                                                 "aten::_softmax",
                                                 "aten::_softmax_backward_data",
                                                 "aten::log_softmax",
                                                 "aten::_log_softmax",
                                                 "aten::_log_softmax_backward_data",
                                                 "aten::cross_entropy_loss",
                                                 "aten::nll_loss",
                                                 "aten::nll_loss_forward",
                                                 "aten::nll_loss_backward",
                                                 "aten::scaled_dot_product_attention",
                                                 "aten::embedding",
                                                 "aten::embedding_dense_backward",
                                                 "aten::linear",
                                                 "aten::addmm",
                                                 "aten::mm",
                                                 "aten::matmul",
                                                 "aten::bmm",
                                                 "aten::sqrt",
                                                 "aten::norm",
                                                 "aten::linalg_vector_norm",
                                                 "aten::addcdiv_",
                                                 "aten::addcmul_",
                                                 "aten::lerp_"};

}  // namespace

TEST_CASE("A step reads nothing back from its device", "[unit][training_step]") {
  for (const std::string precision : {"fp32", "tf32", "bf16", "fp16", "bf16-weights", "fp16-weights"}) {
    for (const std::string optimizer : {"lamb", "adamw"}) {
      CAPTURE(precision, optimizer);
      TrainingStep step(tiny(precision, optimizer, "masked_tokens"), c10::kCPU, nullptr);
      const auto batches = micro_batches(0, c10::kCPU);
      const Calls reads(kWaits);
      for (int i = 0; i < 4; ++i) step.run(batches);
      CHECK(reads.names().empty());
      CHECK(step.applied_steps() == 4);  // the negative twin: this call waits
      CHECK(reads.names().size() == 1);
    }
  }
}

TEST_CASE("A step's arithmetic is that of our operators", "[unit][training_step]") {
  for (const std::string precision : {"fp32", "bf16", "fp16", "bf16-weights", "fp16-weights"}) {
    for (const std::string optimizer : {"lamb", "adamw"}) {
      CAPTURE(precision, optimizer);
      TrainingStep step(tiny(precision, optimizer), c10::kCPU, nullptr);
      const auto batches = micro_batches(0, c10::kCPU);
      {
        const Calls calls(kReplaced);
        step.run(batches);
        CHECK(calls.names() == std::vector<std::string>());
        for (const char* op :
             {"bert::linear", "bert::qkv_linear", "bert::bias_gelu", "bert::layer_norm",
              "bert::bias_dropout_residual_layer_norm", "bert::embedding_layer_norm_dropout", "bert::attention",
              "bert::cross_entropy", "bert::linear_backward", "bert::bias_gelu_backward", "bert::layer_norm_backward",
              "bert::bias_dropout_residual_layer_norm_backward", "bert::embedding_layer_norm_dropout_backward",
              "bert::attention_backward", "bert::cross_entropy_backward_"}) {
          CAPTURE(op);
          CHECK(calls.ours().count(op) == 1);
        }
      }
      const PlainOperators plain({OpGroup::kLinear, OpGroup::kLayerNorm, OpGroup::kGelu, OpGroup::kSoftmax,
                                  OpGroup::kAttention, OpGroup::kCrossEntropy});
      const Calls calls(kReplaced, /*inside_ours=*/true);  // the negative twin: these calls are recorded
      step.run(batches);
      for (const char* op :
           {"aten::layer_norm", "aten::native_layer_norm_backward", "aten::gelu", "aten::gelu_backward",
            "aten::dropout", "aten::softmax", "aten::_softmax_backward_data", "aten::cross_entropy_loss",
            "aten::nll_loss_backward", "aten::embedding", "aten::linear", "aten::mm", "aten::matmul"}) {
        CAPTURE(op);
        CHECK(std::ranges::count(calls.names(), op) > 0);
      }
    }
  }
}

TEST_CASE("Masters and averages of low-precision weights begin with the fp32 weights, not with rounded ones",
          "[unit][training_step]") {
  PretrainConfig config = tiny("fp32", "lamb");
  const TrainingStep full(config, torch::kCPU, nullptr);
  const StateDict weights = state_dict(*full.model);
  config.optimizer.ema_decay = 0.9;
  for (const char* precision : {"bf16-weights", "fp16-weights"}) {
    CAPTURE(precision);
    config.precision = value_named<Precision>(precision).value();
    const TrainingStep fresh(config, torch::kCPU, nullptr);
    TrainingStep started(config, torch::kCPU, nullptr);
    StateDict earlier;  // other weights than the initial ones
    for (const auto& item : weights) earlier.insert(item.key(), item.value().detach() * 1.2345);
    started.start_phase({.weights = earlier, .optimizer_state = StateDict(), .keep_moments = false});
    for (const auto& item : weights) {
      const std::string& name = item.key();
      CAPTURE(name);
      const StateDict state = fresh.optimizer->state_dict(), of_started = started.optimizer->state_dict();
      CHECK(state["master." + name].equal(item.value()));
      CHECK(state["ema." + name].equal(item.value()));
      CHECK(of_started["master." + name].equal(earlier[name]));
      CHECK(of_started["ema." + name].equal(earlier[name]));
      const torch::Tensor rounded = state_dict(*fresh.model)[name];
      CHECK(rounded.equal(item.value().to(rounded.scalar_type())));
    }
  }
}

TEST_CASE("More ranks than parameters cannot share the optimizer's state", "[unit][training_step]") {
  PretrainConfig config = tiny("fp32", "lamb");
  config.distributed.shard_optimizer_state = true;
  const auto group = c10::make_intrusive<c10d::ProcessGroup>(c10::make_intrusive<c10d::HashStore>(), 0, 1000);
  CHECK_THROWS_AS(TrainingStep(config, c10::kCPU, group), ConfigError);
  CHECK_THROWS_WITH(TrainingStep(config, c10::kCPU, group),
                    bert::testing::Contains("distributed.shard_optimizer_state: has 46 parameters to deal to 1000"));
}

// A caching allocator, such as that of CUDA, serves a sequence of requests that it has served before from its cache.
TEST_CASE("From the third step on, equal shapes ask for the same memory and keep none of it", "[unit][training_step]") {
  for (const std::string precision : {"fp32", "bf16", "fp16", "bf16-weights", "fp16-weights"}) {
    for (const std::string optimizer : {"lamb", "adamw"}) {
      CAPTURE(precision, optimizer);
      TrainingStep step(tiny(precision, optimizer), c10::kCPU, nullptr);
      std::vector<int64_t> sizes;
      int64_t peak = 0;
      for (int64_t i = 0; i < 6; ++i) {
        const auto batches = micro_batches(i, c10::kCPU);
        const auto record = bert::testing::allocations_of([&] { step.run(batches); });
        if (i >= 3) {
          CHECK(record->live == 0);
          CHECK(record->peak == peak);
          CHECK(record->sizes == sizes);
        }
        sizes = record->sizes;
        peak = record->peak;
      }
      CHECK(sizes.size() > 100);  // the recorder works
    }
  }
}
