// bert pretrain on the device: the losses of the CPU whatever is trained, and runs that are killed, moved and continued.
#include <c10/util/Logging.h>  // it defines CHECK too

#include <string>
#include <utility>
#include <vector>

#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/files.h"
#include "app/system/exit_codes.h"
#include "app/train/pretrain.h"
#include "tests/null_device/null_device.h"
#include "tests/support/device_under_test.h"
#include "tests/support/tiny_pretraining.h"
// The last include: it includes Catch2.
#include "tests/null_device/tests/run_testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

/// Four steps without attention dropout, whose masks LibTorch draws in its own way on each device. The masks of all other
/// dropout are the same bits on both.
PretrainConfig short_run(const TemporaryDirectory& directory, const std::string& name) {
  PretrainConfig config = tiny(directory, name);
  config.max_steps = 4;
  config.checkpoint_every = 2;
  config.log_every = 1;
  config.report = {"jsonl"};
  config.model.attention_probs_dropout_prob = 0;
  return config;
}

/// Trains on the CPU and on the device, and returns the first difference of what both write. A run on the CPU that is
/// there already is taken as it is.
std::string difference_to_cpu(PretrainConfig config, Tolerance limit) {
  const std::string name = config.run_directory;
  for (const char* device : {"cpu", "cuda"}) {
    const int64_t launches = null_device::count("launch");
    config.device = value_named<DeviceChoice>(device).value();
    config.run_directory = name + "-" + device;
    REQUIRE(pretrain(config, false) == kOk);
    CHECK((null_device::count("launch") > launches) == (device == std::string("cuda")));
  }
  return difference_of_runs(name + "-cuda", name + "-cpu", limit);
}

std::string checkpoint_file(const PretrainConfig& config, int64_t step, const std::string& name) {
  return read_file(checkpoint_directory(config.run_directory, step) + "/" + name);
}

}  // namespace

TEST_CASE("A run on CUDA has the losses of one on the CPU, for every objective", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  for (const char* objective : {"nsp", "mlm", "sop"}) {
    for (const char* masking : {"static", "dynamic"}) {
      INFO(objective << ", masking " << masking);
      PretrainConfig config = short_run(directory, std::string(objective) + "-" + masking);
      config.data.masking = value_named<Masking>(masking).value();
      config.evaluate_every = 4;
      for (std::string* path : {&config.data.train.front(), &config.data.validation.front()}) {
        const bool train = path == &config.data.train.front();
        *path = directory.path(objective + std::string(train ? "-train.shard" : "-validation.shard"));
        write_counting_shard(*path, train ? 100 : 20, train ? 1 : 2, {{"objective", objective}});
      }
      CHECK(difference_to_cpu(config, kLosses) == "");
    }
  }
}

TEST_CASE("A run on CUDA has the losses of one on the CPU, with every optimizer and option", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  const auto check = [&](const std::string& name, const std::function<void(PretrainConfig&)>& change) {
    INFO(name);
    PretrainConfig config = short_run(directory, name);
    change(config);
    CHECK(difference_to_cpu(config, kLosses) == "");
  };
  check("packing", [](PretrainConfig& config) {
    config.micro_batch_tokens = 60;
    config.optimizer.average = GradientAverage::kMaskedTokens;
  });
  check("recomputation", [](PretrainConfig& config) { config.gradient_checkpointing = true; });
  check("ema", [](PretrainConfig& config) {
    config.optimizer.ema_decay = 0.5;
    config.evaluate_every = 2;
    config.report.emplace_back("layers");
  });
  for (const char* type : {"lamb", "adam", "bert_adam", "stable_adamw"}) {
    check(type, [&](PretrainConfig& config) {
      config.optimizer.type = value_named<OptimizerType>(type).value();
      config.optimizer.use_nvlamb = type == std::string("lamb");
      config.optimizer.layer_lr_decay = 0.9;
    });
  }
}

TEST_CASE("A run on CUDA is near one on the CPU in every precision", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  for (const auto& [precision, limit] :
       {std::pair{"tf32", kLosses}, std::pair{"bf16", kBFloat16}, std::pair{"fp16", kHalf},
        std::pair{"bf16-weights", kBFloat16}, std::pair{"fp16-weights", kHalf}, std::pair{"fp8", kBFloat16}}) {
    INFO(precision);
    PretrainConfig config = short_run(directory, precision);
    config.precision = value_named<Precision>(precision).value();
    config.amp.growth_interval = 2;
    CHECK(difference_to_cpu(config, limit) == "");
  }
}

TEST_CASE("A run on CUDA that is killed at any point ends in the same bytes", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  for (const char* precision : {"fp32", "fp16-weights"}) {
    INFO(precision);
    PretrainConfig whole = short_run(directory, std::string("whole-") + precision);
    whole.device = DeviceChoice::kCuda;
    whole.precision = value_named<Precision>(precision).value();
    whole.optimizer.ema_decay = 0.9;
    whole.model.attention_probs_dropout_prob = 0.1;
    PretrainConfig killed = whole;
    killed.run_directory = directory.path(std::string("killed-") + precision);
    REQUIRE(pretrain(whole, false) == kOk);
    const std::vector<std::string> points = precision == std::string("fp32")
                                                ? std::vector<std::string>{"update:3", "checkpoint.rename:1"}
                                                : std::vector<std::string>{"backward:6"};
    for (const std::string& point : points) {
      CAPTURE(point);
      CHECK(Twin("bert", {"pretrain", file_of(killed)}, {{"BERT_FAIL_POINT", point}}).wait() == 1000 + SIGKILL);
    }
    REQUIRE(pretrain(killed, false) == kOk);
    for (const char* file : {kModelFile, kOptimizerFile})
      CHECK(checkpoint_file(whole, 4, file) == checkpoint_file(killed, 4, file));
  }
}

TEST_CASE("A run may change between CPU and CUDA where it stops", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  PretrainConfig reference = short_run(directory, "reference");
  REQUIRE(pretrain(reference, false) == kOk);
  for (const auto& [first, second] : {std::pair{"cpu", "cuda"}, std::pair{"cuda", "cpu"}}) {
    INFO("from " << first << " to " << second);
    PretrainConfig config = reference;
    config.run_directory = directory.path(std::string("from-") + first);
    config.device = value_named<DeviceChoice>(first).value();
    config.stop_at_step = 2;
    REQUIRE(pretrain(config, false) == kOk);
    config.device = value_named<DeviceChoice>(second).value();
    config.stop_at_step = 0;
    REQUIRE(pretrain(config, false) == kOk);
    CHECK(difference_of_runs(config.run_directory, reference.run_directory, kLosses) == "");
  }
}

TEST_CASE("The second phase of pre-training goes on from the first one on CUDA", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  PretrainConfig first = short_run(directory, "first");
  CHECK(difference_to_cpu(first, kLosses) == "");
  PretrainConfig second = short_run(directory, "second");
  second.initial_checkpoint = first.run_directory + "-cuda";
  second.optimizer.lr = 1e-3;
  second.max_steps = 2;
  CHECK(difference_to_cpu(second, kLosses) == "");
  second.initial_checkpoint = first.run_directory + "-cpu";
  second.run_directory = directory.path("other");
  CHECK(difference_to_cpu(second, kLosses) == "");
  CHECK(difference_of_runs(directory.path("other-cpu"), directory.path("second-cpu"), kLosses) == "");
}
