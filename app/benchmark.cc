#include "app/benchmark.h"

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/command_line.h"
#include "app/config.h"
#include "app/metrics.h"
#include "app/trainer.h"
#include "app/training_step.h"
#include "data/error.h"

namespace bert {
namespace {

struct BenchmarkOptions {
  std::string config, lengths, precision = "fp32", device = "auto";
  int64_t batch = 8, length = 128, steps = 10, warmup = 3, threads = 0;
  bool json = false;
};

std::vector<int64_t> read_lengths(const BenchmarkOptions& options) {
  if (options.lengths.empty()) return {options.length};
  std::ifstream file(options.lengths);
  if (!file) throw InputMissing(options.lengths + ": cannot be read; --lengths takes a file with one number a line");
  std::vector<int64_t> result;
  for (int64_t length = 0; file >> length;) result.push_back(length);
  if (!file.eof() || result.empty())
    throw DataError(options.lengths + ": expected one length a line, got something else in line " +
                    std::to_string(result.size() + 1));
  return result;
}

/// Random tokens without padding; 15 % of each sequence masked, as the published recipes have it.
PackedBatch random_batch(const std::vector<int64_t>& lengths, int64_t vocab_size, torch::Generator generator,
                         int64_t first_sample) {
  constexpr double kMaskedShare = 0.15;
  const auto options = torch::TensorOptions().dtype(torch::kInt64);
  std::vector<int64_t> positions, keys, masked;
  std::vector<int32_t> cu_seqlens = {0};
  PackedBatch batch;
  for (size_t row = 0; row < lengths.size(); ++row) {
    const int64_t length = lengths[row], start = cu_seqlens.back();
    const auto picked =
        std::get<0>(torch::randperm(length, generator, options)
                        .slice(0, 0, std::max<int64_t>(1, std::lround(kMaskedShare * static_cast<double>(length))))
                        .sort());
    for (int64_t i = 0; i < picked.numel(); ++i) masked.push_back(start + picked[i].item<int64_t>());
    for (int64_t position = 0; position < length; ++position) {
      positions.push_back(position);
      keys.push_back((first_sample + static_cast<int64_t>(row)) << 16 | position);
    }
    cu_seqlens.push_back(static_cast<int32_t>(start + length));
    batch.max_seqlen = std::max(batch.max_seqlen, length);
  }
  const auto tokens = static_cast<int64_t>(positions.size());
  batch.input_ids = torch::randint(5, vocab_size, {tokens}, generator, options);
  batch.token_type_ids = torch::zeros({tokens}, options);
  batch.position_ids = torch::tensor(positions, options);
  batch.dropout_keys = torch::tensor(keys, options);
  batch.cu_seqlens = torch::tensor(cu_seqlens, torch::kInt32);
  batch.masked_positions = torch::tensor(masked, options);
  batch.masked_ids = batch.input_ids.index_select(0, batch.masked_positions);
  batch.next_sentence_labels = torch::randint(0, 2, {static_cast<int64_t>(lengths.size())}, generator, options);
  return batch;
}

void synchronize(c10::Device device) {
  if (device.is_cuda()) torch::cuda::synchronize(device.index());
}

int run_benchmark(const std::string& mode, const BenchmarkOptions& options) {
  PretrainConfig config = options.config.empty() ? PretrainConfig{} : load_pretrain_config(options.config, {});
  config.precision = options.precision;
  config.device = options.device;
  config.micro_batch_size = config.global_batch_size = options.batch;
  if (options.threads > 0) torch::set_num_threads(static_cast<int>(options.threads));
  const std::vector<int64_t> pool = read_lengths(options);
  const int64_t longest = *std::max_element(pool.begin(), pool.end());
  if (*std::min_element(pool.begin(), pool.end()) < 1 || longest > config.model.max_position_embeddings) {
    throw UsageError("lengths must be from 1 to max_position_embeddings = " +
                     std::to_string(config.model.max_position_embeddings));
  }
  TrainingStep step(config, select_device(config.device, 0), nullptr);
  const bool training = mode == "step";
  step.model->train(training);

  auto generator = at::make_generator<at::CPUGeneratorImpl>(0);
  const FlopCounter flops(config.model);
  std::vector<double> seconds;
  double total_flops = 0;
  int64_t tokens = 0, at = 0;
  for (int64_t i = 0; i < options.warmup + options.steps; ++i) {
    std::vector<int64_t> lengths(static_cast<size_t>(options.batch));
    for (int64_t& length : lengths) length = pool[static_cast<size_t>(at++) % pool.size()];
    const PackedBatch batch =
        to_device(random_batch(lengths, config.model.vocab_size, generator, i * options.batch), step.device());
    synchronize(step.device());
    const auto start = std::chrono::steady_clock::now();
    if (training) {
      step.run({&batch, 1});
    } else {
      const torch::InferenceMode inference;
      step.encode(batch);
    }
    synchronize(step.device());
    if (i < options.warmup) continue;
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    tokens += batch.num_tokens();
    for (const int64_t length : lengths) total_flops += flops.forward_of_sequence(length) * (training ? 3 : 1);
    if (training) total_flops += 3 * flops.forward_of_heads(batch.num_masked(), options.batch);
  }
  double total = 0;
  for (const double s : seconds) total += s;
  std::sort(seconds.begin(), seconds.end());
  const auto percentile = [&](double share) {
    return 1e3 * seconds[static_cast<size_t>(share * static_cast<double>(seconds.size() - 1))];
  };
  const double sequences_per_second = static_cast<double>(options.batch * options.steps) / total;
  nlohmann::ordered_json result = {
      {"benchmark", mode},
      {"config", options.config},
      {"precision", options.precision},
      {"device", step.device().str()},
      {"threads", torch::get_num_threads()},
      {"batch", options.batch},
      {"steps", options.steps},
      {"sequences_per_second", sequences_per_second},
      {"tokens_per_second", static_cast<double>(tokens) / total},
      {"tflops", 1e-12 * total_flops / total},
      {"ms_median", percentile(0.5)},
      {"ms_p10", percentile(0.1)},
      {"ms_p90", percentile(0.9)},
      {"ms_p99", percentile(0.99)},
  };
  if (options.lengths.empty()) {
    result["length"] = options.length;
  } else {
    result["lengths"] = options.lengths;
  }
  if (options.json) {
    std::cout << result.dump() << "\n";
  } else {
    for (const auto& [key, value] : result.items()) std::cout << key << ": " << value << "\n";
  }
  return 0;
}

}  // namespace

int benchmark_command(int argc, char** argv) {
  BenchmarkOptions options;
  CLI::App app(
      "Times training steps or inference on random tokens without padding.\nExample: bert benchmark step --config "
      "configs/bert-base.json --batch 8 --length 128 --json",
      "bert benchmark");
  std::string mode;
  app.add_option("what", mode, "step (forward, backward, update) or inference (encoder and pooler)")
      ->required()
      ->check(CLI::IsMember({"step", "inference"}));
  app.add_option("--config", options.config, "configuration; its model and optimizer are used (default: BERT-base)");
  app.add_option("--batch", options.batch, "sequences")->check(CLI::PositiveNumber);
  app.add_option("--length", options.length, "tokens of every sequence")->check(CLI::PositiveNumber);
  app.add_option("--lengths", options.lengths, "file with one length a line, used in turn instead of --length");
  app.add_option("--precision", options.precision, "fp32, tf32, bf16, fp16, bf16-weights, fp16-weights");
  app.add_option("--device", options.device, "auto, cpu or cuda");
  app.add_option("--threads", options.threads, "processor threads (default: all, or OMP_NUM_THREADS)")
      ->check(CLI::PositiveNumber);
  app.add_option("--steps", options.steps, "timed steps")->check(CLI::PositiveNumber);
  app.add_option("--warmup", options.warmup, "steps before them")->check(CLI::NonNegativeNumber);
  app.add_flag("--json", options.json, "one JSON object on the last line");
  if (!parse_command_line(app, argc, argv)) return 0;
  return run_benchmark(mode, options);
}

}  // namespace bert
