// A device with little memory: what a run says that does not fit, and the micro-batch that fits.
#include "app/plan/memory.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "app/system/exit_codes.h"
#include "app/train/micro_batch.h"
#include "app/train/step/training_step.h"
#include "tests/null_device/tests/step_testing.h"
#include "tests/support/device_under_test.h"
#include "tests/support/tiny_pretraining.h"
// Last, because it includes Catch2.
#include "tests/null_device/tests/run_testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

using c10::cuda::CUDACachingAllocator::emptyCache;
using c10::cuda::CUDACachingAllocator::getDeviceStats;
using c10::cuda::CUDACachingAllocator::resetPeakStats;

/// The memory of all devices, in this process and in those that it starts.
class DeviceMemory {
 public:
  explicit DeviceMemory(int64_t megabytes) { set(megabytes); }
  ~DeviceMemory() { unsetenv(kVariable); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  static void set(int64_t megabytes) { setenv(kVariable, std::to_string(megabytes).c_str(), 1); }

 private:
  static constexpr const char* kVariable = "NULL_DEVICE_MEMORY_MB";
};
constexpr int64_t kMuch = 200000;

/// Takes back what the process keeps of earlier tests.
void empty_device() {
  at::cuda::clearCublasWorkspaces();
  emptyCache();
}

/// Training of a model with its real sizes. The device queues its work and does not compute it.
class RealSteps {
 public:
  RealSteps(const PretrainConfig& config, int64_t length, c10::Device device)
      : config_(config), length_(length), device_(device) {}

  [[nodiscard]] SequenceSize sequence() const {
    return {.tokens = static_cast<double>(length_), .masked = static_cast<double>(batch(1).num_masked())};
  }
  [[nodiscard]] double plan(int64_t sequences) const {
    PretrainConfig sized = config_;
    sized.micro_batch_size = sequences;
    return plan_memory(sized, parameter_sizes(config_), sequence(), 1).total();
  }
  /// The micro-batch that a run takes on the empty device. Call it before the others.
  [[nodiscard]] int64_t automatic() const {
    PretrainConfig config = config_;
    config.micro_batch_size = RunConfig::kFromMemory;
    return choose_micro_batch(
        config, parameter_sizes(config), sequence(), {.device = device_}, [](const auto&, const auto&) { return 0; },
        [](const std::string&) {});
  }
  /// True if steps with micro-batches of so many sequences fit.
  bool fits(int64_t sequences) {
    if (!step_) step_.emplace(config_, device_, nullptr);
    emptyCache();
    try {
      const std::vector<PackedBatch> batches = moved({batch(sequences)}, device_);
      for (int i = 0; i < 3; ++i) step_->run(batches);
      return true;
    } catch (const c10::OutOfMemoryError&) {
      return false;
    }
  }
  /// The most bytes of tensors in such steps.
  double bytes(int64_t sequences) {
    fits(1);  // what stays
    resetPeakStats(device_.index());
    fits(sequences);
    return static_cast<double>(getDeviceStats(device_.index()).allocated_bytes[0].peak);
  }

 private:
  [[nodiscard]] PackedBatch batch(int64_t sequences) const {
    return random_batch({.lengths = std::vector<int64_t>(static_cast<size_t>(sequences), length_),
                         .vocab_size = config_.model.vocab_size},
                        at::make_generator<at::CPUGeneratorImpl>(uint64_t{1}));
  }

  PretrainConfig config_;
  int64_t length_;
  c10::Device device_;
  std::optional<TrainingStep> step_;
};

PretrainConfig real_config(const std::string& precision, bool checkpointing, double attention_dropout = 0.1) {
  PretrainConfig config;  // BERT-base
  config.precision = value_named<Precision>(precision).value();
  config.gradient_checkpointing = checkpointing;
  config.model.attention_probs_dropout_prob = attention_dropout;
  config.max_steps = 100;
  config.global_batch_size = 720720;  // has divisors everywhere, at most 10 % apart
  return config;
}

/// The first divisor of the global batch that is more than 1 / 0.9 times as large.
int64_t too_large_for(int64_t size, int64_t global_batch_size) {
  int64_t larger = size;
  while (global_batch_size % larger != 0 || 0.9 * static_cast<double>(larger) <= static_cast<double>(size)) ++larger;
  return larger;
}

TEST_CASE("The micro-batch auto of BERT-base fits, and is within 10 % of the largest that fits", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const null_device::DryRun dry;
  const std::vector<int64_t> sizes = {4000, 8000, 16000, 24000};  // MB
  struct Case {
    const char* precision;
    bool checkpointing;
    int64_t length;
    double attention_dropout;
  };
  for (const Case& each : {Case{"bf16", false, 128, 0.1}, Case{"fp32", true, 128, 0.0}}) {
    INFO(each.precision << (each.checkpointing ? ", recomputed, " : ", ") << each.length << " tokens");
    const PretrainConfig config = real_config(each.precision, each.checkpointing, each.attention_dropout);
    RealSteps steps(config, each.length, device);
    empty_device();
    DeviceMemory memory(kMuch);
    std::vector<int64_t> chosen;
    for (const int64_t megabytes : sizes) {
      DeviceMemory::set(megabytes);
      chosen.push_back(steps.automatic());
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      DeviceMemory::set(sizes[i]);
      const int64_t beyond = too_large_for(chosen[i], config.global_batch_size);
      INFO(sizes[i] << " MB: " << chosen[i] << ", and " << beyond << " is too large");
      CHECK(steps.fits(chosen[i]));
      CHECK_FALSE(steps.fits(beyond));
    }
  }
}

TEST_CASE("Plans of memory are what steps allocate", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const null_device::DryRun dry;
  const DeviceMemory memory(kMuch);
  constexpr double kRest = 90e6;  // two workspaces of cuBLAS, 64 MiB, and the tables of the optimizer
  for (const char* precision : {"fp32", "bf16", "bf16-weights", "fp16"}) {
    for (const bool checkpointing : {false, true}) {
      INFO(precision << (checkpointing ? ", recomputed" : ""));
      PretrainConfig config = real_config(precision, checkpointing, precision == std::string("fp32") ? 0.0 : 0.1);
      config.model.num_hidden_layers = 4;
      config.model.hidden_size = 512;
      config.model.num_attention_heads = 8;
      config.model.intermediate_size = 2048;
      empty_device();
      RealSteps steps(config, 128, device);
      CHECK(steps.bytes(128) == Approx(steps.plan(128) + kRest).epsilon(0.02));
    }
  }
}

struct Ending {
  int code = 0;
  std::string err;
};

/// Runs `bert pretrain` on a device with so many MB.
Ending pretrain_with(int64_t megabytes, const PretrainConfig& config) {
  Twin run("bert", {"pretrain", file_of(config)}, {{"NULL_DEVICE_MEMORY_MB", std::to_string(megabytes)}});
  const int code = run.wait();
  return {.code = code, .err = run.err()};
}

TEST_CASE("A run that does not fit ends with 71, and says what was asked, what is free and what to change", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.device = DeviceChoice::kCuda;
  config.model.hidden_size = 256;
  config.model.intermediate_size = 1024;
  config.max_steps = 1;
  const Ending ending = pretrain_with(34, config);
  CHECK(ending.code == kOutOfMemory);
  for (const char* part : {"out of memory: ", "Tried to allocate ", "total capacity of 34.00 MiB", " is free",
                           "lower micro_batch_size", "gradient_checkpointing=true"}) {
    CHECK_THAT(ending.err, Contains(part));
  }
  config.micro_batch_size = RunConfig::kFromMemory;
  const Ending refused = pretrain_with(34, config);
  CHECK(refused.code == kBadConfiguration);
  CHECK_THAT(refused.err, Contains("micro_batch_size auto: the plan of one sequence is") &&
                              Contains("set gradient_checkpointing=true"));
  config.run_directory = directory.path("fits");
  const Ending fits = pretrain_with(1000, config);
  CHECK(fits.code == kOk);
  CHECK_THAT(fits.err, Contains("micro_batch_size auto: 8, the largest that fits"));
}

}  // namespace
