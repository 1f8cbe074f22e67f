// What a training step must not do: wait for the device, or ask the allocator for anything new once shapes repeat.
#include "app/training_step.h"

#include <ATen/record_function.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "app/random_batch.h"
#include "tests/allocations.h"
#include "tests/testing.h"

using namespace bert;

namespace {

PretrainConfig tiny(const std::string& precision, const std::string& optimizer,
                    const std::string& average = "micro_batches") {
  PretrainConfig config;
  config.precision = precision;
  config.optimizer.type = optimizer;
  config.optimizer.average = average;
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
    result.push_back(
        to_device(random_batch({.lengths = {12, 30, 7}, .vocab_size = 64, .first_sample = 6 * step + 3 * micro},
                               at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(step))),
                  device));
  }
  return result;
}

/// Counts what makes the host wait for a device: reading a value, and operators whose result's size is one. On the CPU
/// kernels read their own scalars, so what an operator of ours does inside is left out.
class HostReads {
 public:
  HostReads() {
    found().clear();
    depth() = 0;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(enter, leave).scopes({at::RecordScope::FUNCTION}));
  }
  ~HostReads() { at::removeCallback(handle_); }
  HostReads(const HostReads&) = delete;
  HostReads& operator=(const HostReads&) = delete;
  [[nodiscard]] const std::vector<std::string>& names() const { return found(); }

 private:
  static bool ours(const at::RecordFunction& call) { return std::string_view(call.name()).starts_with("bert::"); }
  static std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& call) {
    constexpr std::array<std::string_view, 6> kWaits = {
        "aten::_local_scalar_dense", "aten::is_nonzero", "aten::nonzero",
        "aten::masked_select",       "aten::equal",      "aten::_unique2"};
    if (depth() == 0 && std::find(kWaits.begin(), kWaits.end(), call.name()) != kWaits.end())
      found().emplace_back(call.name());
    if (ours(call)) ++depth();
    return nullptr;
  }
  static void leave(const at::RecordFunction& call, at::ObserverContext* /*context*/) {
    if (ours(call)) --depth();
  }
  static std::vector<std::string>& found() {
    static std::vector<std::string> names;
    return names;
  }
  static int& depth() {
    static int value = 0;
    return value;
  }
  at::CallbackHandle handle_;
};

}  // namespace

TEST_CASE("A step reads nothing back from its device", "[unit][training_step]") {
  for (const std::string precision : {"fp32", "bf16", "fp16", "bf16-weights"}) {
    for (const std::string optimizer : {"lamb", "adamw"}) {
      CAPTURE(precision, optimizer);
      TrainingStep step(tiny(precision, optimizer, "masked_tokens"), c10::kCPU, nullptr);
      const auto batches = micro_batches(0, c10::kCPU);
      const HostReads reads;
      for (int i = 0; i < 4; ++i) step.run(batches);
      CHECK(reads.names().empty());
      CHECK(step.applied_steps() == 4);  // the twin: this waits
      CHECK(reads.names().size() == 1);
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

// A caching allocator, as CUDA's, serves a sequence of requests that it has served before from what it holds.
TEST_CASE("From the third step on, equal shapes ask for the same memory and keep none of it", "[unit][training_step]") {
  for (const std::string precision : {"fp32", "bf16", "bf16-weights"}) {
    CAPTURE(precision);
    TrainingStep step(tiny(precision, "lamb"), c10::kCPU, nullptr);
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
    CHECK(sizes.size() > 100);  // it records
  }
}
