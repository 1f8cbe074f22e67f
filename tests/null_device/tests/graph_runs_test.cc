// Runs whose steps are replayed as CUDA graphs: the bytes of eager runs, and the end of graphs that cannot be.
#include <c10/util/Logging.h>  // it defines CHECK too

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "app/checkpoint/files.h"
#include "app/system/exit_codes.h"
#include "app/train/pretrain.h"
#include "app/train/step/optimizer_step.h"
#include "data/loader/dataloader.h"
#include "model/bert.h"
#include "model/state_dict.h"
#include "tests/null_device/null_device.h"
#include "tests/null_device/tests/step_testing.h"
#include "tests/support/device_under_test.h"
#include "tests/support/tiny_pretraining.h"
// The last include: it includes Catch2.
#include "tests/null_device/tests/run_testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

PretrainConfig static_run(const TemporaryDirectory& directory, const std::string& name) {
  PretrainConfig config = tiny(directory, name);
  config.device = DeviceChoice::kCuda;
  config.micro_batch_tokens = 60;
  config.optimizer.average = GradientAverage::kMaskedTokens;
  config.max_steps = 6;
  config.log_every = 2;
  config.checkpoint_every = 3;
  config.report = {"jsonl"};
  config.amp.growth_interval = 2;
  return config;
}

std::string checkpoint_file(const PretrainConfig& config, const std::string& name) {
  return read_file(checkpoint_directory(config.run_directory, config.max_steps) + "/" + name);
}

/// Runs with and without graphs, and compares what they leave. Returns the line of the log about graphs.
std::string check_same_bytes(PretrainConfig config) {
  PretrainConfig eager = config;
  eager.run_directory += "-off";
  config.cuda_graphs = CudaGraphs::kOn;
  REQUIRE(pretrain(eager, false) == kOk);
  const int64_t replays = null_device::count("replay");
  REQUIRE(pretrain(config, false) == kOk);
  CHECK(null_device::count("replay") > replays);
  for (const char* file : {kModelFile, kOptimizerFile})
    CHECK(checkpoint_file(config, file) == checkpoint_file(eager, file));
  CHECK(difference_of_runs(config.run_directory, eager.run_directory, {0, 0}) == "");
  const std::string log = read_file(config.run_directory + "/run.log");
  const size_t end = log.find(" replays of ");
  REQUIRE(end != std::string::npos);
  return log.substr(log.rfind(' ', end - 1) + 1, log.find('\n', end) - log.rfind(' ', end - 1) - 1);
}

TEST_CASE("A run with graphs ends in the bytes of a run without, in every precision", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  for (const char* precision : {"fp32", "tf32", "bf16", "bf16-weights", "fp16", "fp16-weights", "fp8"}) {
    INFO(precision);
    PretrainConfig config = static_run(directory, precision);
    config.precision = value_named<Precision>(precision).value();
    CHECK(check_same_bytes(config).ends_with(" graphs"));
  }
}

TEST_CASE("A run with graphs ends in the bytes of a run without, with every option", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  const auto check = [&](const std::string& name, const std::function<void(PretrainConfig&)>& change) {
    INFO(name);
    PretrainConfig config = static_run(directory, name);
    config.precision = Precision::kBf16;
    change(config);
    check_same_bytes(config);
  };
  check("masks drawn", [](PretrainConfig& config) { config.data.masking = Masking::kDynamic; });
  check("ema, evaluations", [](PretrainConfig& config) {
    config.optimizer.ema_decay = 0.5;
    config.evaluate_every = 2;
  });
  check("adam, clipping", [](PretrainConfig& config) {
    config.optimizer.type = OptimizerType::kAdam;
    config.optimizer.max_grad_norm = 1e-3;
  });
  check("overflow", [](PretrainConfig& config) {
    config.precision = Precision::kFp16;
    config.amp.init_scale = 4294967296.0;
  });
}

/// Pre-training whose loss can depend on the host: `wrong` replaces its factor in later calls.
class HostStep : public OptimizerStep {
 public:
  HostStep(const PretrainConfig& config, c10::Device device) : HostStep(config, made(config), device) {}

  [[nodiscard]] std::vector<std::string> loss_names() const override { return {"mlm", "nsp"}; }

  int64_t calls = 0, different_from = 1 << 20, fails_at = 1 << 20;

 private:
  static BertForPreTraining made(const PretrainConfig& config) {
    torch::manual_seed(1);
    return BertForPreTraining(config.model);
  }
  HostStep(const PretrainConfig& config, BertForPreTraining model, c10::Device device)
      : OptimizerStep(config, model.ptr(), device, nullptr, {}), model_(std::move(model)) {}

  std::vector<torch::Tensor> loss_terms(const PackedBatch& batch) override {
    ++calls;
    TORCH_CHECK(calls != fails_at, "the host says no");
    const PretrainingLoss loss = pretraining_loss(model_->forward(batch), batch, kVocabulary);
    return {calls >= different_from ? loss.mlm * 2.0 : loss.mlm, loss.nsp};
  }
  [[nodiscard]] std::vector<torch::Tensor> loss_items(const PackedBatch& batch) const override {
    return {known_items(batch.num_masked() - batch.padding.masked),
            known_items(batch.num_sequences() - batch.padding.sequences)};
  }
  BertForPreTraining model_;
};

struct HostRun {
  std::string said, weights;
  int64_t replays = 0;
};

/// Three steps of one micro-batch each.
HostRun run_host_step(const TemporaryDirectory& directory, c10::Device device, bool graphs, bool required,
                      int64_t different_from, int64_t fails_at) {
  PretrainConfig config = static_run(directory, "host");
  config.model.hidden_dropout_prob = config.model.attention_probs_dropout_prob = 0;
  const auto shards = std::make_shared<const PretrainingShards>(config.data.train);
  PretrainingDataLoader loader(shards,
                               {.micro_batch_tokens = 64, .seed = 1, .global_batch_size = 4, .pin_memory = true});
  HostStep step(config, device);
  step.different_from = different_from;
  step.fails_at = fails_at;
  HostRun result;
  if (graphs) step.use_graphs(required, [&](const std::string& text) { result.said += text + "\n"; });
  const int64_t before = null_device::count("replay");
  for (int i = 0; i < 3; ++i) step.run(loader.next_step());
  result.replays = null_device::count("replay") - before;
  for (const auto& item : state_dict(step.module())) {
    const torch::Tensor bits = item.value().detach().to(torch::kCPU).contiguous();
    result.weights.append(static_cast<const char*>(bits.const_data_ptr()), bits.nbytes());
  }
  return result;
}

TEST_CASE("A step with graphs that leaves other bits, or cannot be captured, is made without", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  constexpr int64_t kNever = 1 << 20;
  const auto run = [&](bool graphs, bool required, int64_t different_from, int64_t fails_at) {
    return run_host_step(directory, device, graphs, required, different_from, fails_at);
  };
  const HostRun eager = run(false, false, kNever, kNever), right = run(true, true, kNever, kNever);
  CHECK(right.weights == eager.weights);
  CHECK(right.said == "");
  CHECK(right.replays > 3);
  // The second call of the loss is that of the capture. After it, all steps are eager, whatever the loss is.
  const HostRun different = run(true, false, 2, kNever), twice = run(false, false, 2, kNever);
  CHECK_THAT(different.said, Contains("leaves other bits than one without in"));
  CHECK(different.weights == twice.weights);
  const HostRun failed = run(true, false, kNever, 2);
  CHECK_THAT(failed.said, Contains("the capture of a micro-step failed: the host says no"));
  CHECK(failed.weights == eager.weights);
  CHECK(failed.replays == 0);
  CHECK_THROWS_WITH(run(true, true, 2, kNever), Contains("cuda_graphs on") && Contains("other bits"));
  CHECK_THROWS_WITH(run(true, true, kNever, 2), Contains("cuda_graphs on") && Contains("the host says no"));
}

}  // namespace
