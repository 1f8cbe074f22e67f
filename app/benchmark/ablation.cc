#include "app/benchmark/ablation.h"

#include <torch/types.h>

#include <chrono>

#include "app/benchmark/plain_operators.h"
#include "app/benchmark/random_batch.h"
#include "app/benchmark/report.h"
#include "app/system/errors.h"
#include "app/train/step/device.h"
#include "app/train/step/training_step.h"

namespace bert {
namespace {

/// One stage, as the list of what is off. The plain program has everything off: fp32, ATen's operators, logits for
/// every token, padding computed like tokens.
struct Stage {
  const char* name;
  bool low_precision;
  std::vector<OpGroup> plain;
  bool every_token, padded;
  bool larger_batch;
};

std::vector<Stage> stages() {
  const std::vector<OpGroup> plain = {OpGroup::kLinear,   OpGroup::kLayerNorm, OpGroup::kGelu,
                                      OpGroup::kSoftmax,  OpGroup::kAttention, OpGroup::kCrossEntropy,
                                      OpGroup::kOptimizer};
  Stage now{.name = "plain",
            .low_precision = false,
            .plain = plain,
            .every_token = true,
            .padded = true,
            .larger_batch = false};
  std::vector<Stage> list = {now};
  const auto next = [&](const char* name) {
    now.name = name;
    list.push_back(now);
  };
  const auto fuse = [&](const char* name, OpGroup group) {
    std::erase(now.plain, group);
    next(name);
  };
  now.low_precision = true;
  next("precision");
  fuse("linear", OpGroup::kLinear);
  fuse("layer_norm", OpGroup::kLayerNorm);
  fuse("gelu", OpGroup::kGelu);
  fuse("softmax_dropout", OpGroup::kSoftmax);
  fuse("attention", OpGroup::kAttention);
  fuse("optimizer", OpGroup::kOptimizer);
  now.every_token = false;
  fuse("masked_rows", OpGroup::kCrossEntropy);
  now.padded = false;
  next("packing");
  now.larger_batch = true;
  next("larger_batch");
  return list;
}

/// A training step that can run as any stage.
class StagedStep : public TrainingStep {
 public:
  StagedStep(const PretrainConfig& config, c10::Device device)
      : TrainingStep(config, device, nullptr), low_precision_(precision_) {}

  /// Milliseconds of one step.
  double run(const Stage& stage, const PackedBatch& batch) {
    precision_ = stage.low_precision ? low_precision_ : Precision::kFp32;
    set_matmul_precision(precision_);
    every_token_ = stage.every_token;
    const PlainOperators scope(stage.plain);
    synchronize(device());
    const auto start = std::chrono::steady_clock::now();
    TrainingStep::run({&batch, 1});
    synchronize(device());
    return 1e3 * std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 protected:
  PretrainingLoss loss(const PackedBatch& batch) override {
    if (!every_token_) return TrainingStep::loss(batch);
    constexpr int64_t kIgnored = -100;  // PyTorch's ignore_index
    PackedBatch all = batch;
    all.masked_positions = torch::arange(batch.num_tokens(), batch.input_ids.options());
    const PretrainingOutput output = forward(all);
    const torch::Tensor labels =
        torch::full_like(batch.input_ids, kIgnored).index_copy_(0, batch.masked_positions, batch.masked_ids);
    const torch::Tensor logits = output.mlm_logits.narrow(1, 0, vocab_size_).to(torch::kFloat);
    const torch::Tensor mlm = at::cross_entropy_loss(logits, labels, {}, at::Reduction::Mean, kIgnored);
    return add_sentence_pair_loss(mlm, output, batch);
  }

 private:
  Precision low_precision_;
  bool every_token_ = false;
};

struct Samples {
  std::vector<double> ms;
  double loss = 0;
};

nlohmann::ordered_json rows_of(const std::vector<Stage>& list, const std::vector<Samples>& samples,
                               const AblationOptions& options) {
  nlohmann::ordered_json rows = nlohmann::json::array();
  double first = 0, before = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    const int64_t batch = list[i].larger_batch ? options.larger_batch : options.step.batch;
    const Quantiles ms(samples[i].ms);
    const double rate = 1e3 * static_cast<double>(batch) / ms.at(0.5);
    if (i == 0) first = before = rate;
    rows.push_back({{"name", list[i].name},
                    {"batch", batch},
                    {"ms_median", ms.at(0.5)},
                    {"ms_p10", ms.at(0.1)},
                    {"ms_p90", ms.at(0.9)},
                    {"sequences_per_second", rate},
                    {"gain", rate / before},
                    {"speedup", rate / first},
                    {"loss", samples[i].loss}});
    before = rate;
  }
  return rows;
}

}  // namespace

nlohmann::ordered_json run_ablation(const AblationOptions& options) {
  const PretrainConfig& config = options.step.config;
  if (weights_dtype(parse_precision(config.precision)) != torch::kFloat)
    throw UsageError("--precision " + config.precision + ": the stages share weights in fp32; use bf16 or fp16");
  StagedStep step(config, select_device(config.device, 0));
  const std::vector<Stage> list = stages();
  std::vector<Samples> samples(list.size());
  std::vector<at::Generator> generators;  // one for each stage: stages of one batch size get the same batches
  for (size_t i = 0; i < list.size(); ++i) generators.push_back(at::make_generator<at::CPUGeneratorImpl>(0));
  for (int64_t round = 0; round < options.step.warmup + options.step.steps; ++round) {
    for (size_t i = 0; i < list.size(); ++i) {
      const int64_t count = list[i].larger_batch ? options.larger_batch : options.step.batch;
      const PackedBatch batch = random_batch({.lengths = lengths_in_turn(options.step.lengths, round * count, count),
                                              .vocab_size = config.model.vocab_size,
                                              .first_sequence = round * count,
                                              .padded = list[i].padded},
                                             generators[i]);
      const double ms = step.run(list[i], batch.to(step.device()));
      const TrainingStep::MeanLoss loss = step.take_mean_loss();
      if (round < options.step.warmup) continue;
      samples[i].ms.push_back(ms);
      samples[i].loss += (loss.mlm + loss.nsp) / static_cast<double>(options.step.steps);
    }
  }
  return rows_of(list, samples, options);
}

}  // namespace bert
