#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "app/benchmark/data.h"
#include "app/benchmark/inference.h"
#include "app/benchmark/kernels.h"
#include "app/benchmark/preparation.h"
#include "app/benchmark/report.h"
#include "app/benchmark/step.h"
#include "app/cli/command_line.h"
#include "app/config/pretrain_config.h"
#include "app/inference/pretrained.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/system/machine/threads.h"
#include "app/train/micro_batch.h"
#include "app/train/run_inputs.h"
#include "app/train/run_loader.h"
#include "app/train/step/device.h"
#include "app/train/step/training_step.h"
#include "app/verbs/benchmark_options.h"
#include "app/verbs/verbs.h"
#include "cuda_ext/compat.h"
#include "data/io/error.h"
#include "model/initialization.h"
#include "model/state_dict.h"

namespace bert {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kNoise = 0.9;  // --compare marks a figure as slower below this share of its old speed

std::vector<int64_t> read_lengths(const BenchmarkOptions& options, int64_t limit) {
  std::vector<int64_t> result;
  if (options.lengths.empty()) {
    result = {options.length};
  } else {
    std::ifstream file(options.lengths);
    if (!file) throw InputMissing(options.lengths + ": cannot be read; --lengths takes a file with one number a line");
    int64_t number = 0;
    for (std::string line; std::getline(file, line);) {
      ++number;
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      int64_t length = 0;
      std::istringstream words(line);
      std::string rest;
      if (!(words >> length) || words >> rest || length < 1 || length > limit) {
        throw DataError(fmt::format("{}: line {}: want one length from 1 to {} (max_position_embeddings), got {}",
                                    options.lengths, number, limit, line));
      }
      result.push_back(length);
    }
    if (result.empty()) throw DataError(options.lengths + ": has no length; want one on each line");
  }
  if (options.lengths.empty() && options.length > limit) {
    throw UsageError(
        fmt::format("--length {}: the model takes at most {} (max_position_embeddings)", options.length, limit));
  }
  return result;
}

PretrainConfig read_config(const BenchmarkOptions& options) {
  PretrainConfig config =
      options.config.empty() ? PretrainConfig{} : load_pretrain_config(options.config, options.overrides);
  if (!options.precision.empty()) config.precision = options.precision;
  config.device = options.device;
  config.micro_batch_size = config.global_batch_size = options.batch;
  return config;
}

Json sizes_of(const BertConfig& model) {
  return {{"vocab_size", model.vocab_size},
          {"hidden_size", model.hidden_size},
          {"num_hidden_layers", model.num_hidden_layers},
          {"num_attention_heads", model.num_attention_heads},
          {"intermediate_size", model.intermediate_size}};
}

/// Adds the path of the configuration and its overrides, if any.
void add_config_name(Json& report, const BenchmarkOptions& options) {
  report["config"] = options.config;
  if (!options.overrides.empty()) report["overrides"] = options.overrides;
}

/// The first members of a report: mode, machine, device, precision, configuration, threads.
Json header(const BenchmarkOptions& options, c10::Device device, const std::string& precision) {
  Json report = {{"benchmark", options.mode},
                 {"machine", device.is_cuda() ? compat::device_name(device) : processor_name()},
                 {"device", device.str()},
                 {"precision", precision}};
  add_config_name(report, options);
  if (device.is_cpu()) report["threads"] = torch::get_num_threads();
  return report;
}

nlohmann::json plain(const Json& report) { return nlohmann::json::parse(report.dump()); }

/// Throws before the work if the report of --compare cannot be compared with this one (check_comparable()).
void expect_comparable(const BenchmarkOptions& options, const Json& report) {
  if (!options.compare.empty()) check_comparable(read_report(options.compare), plain(report));
}

/// Prints the figures for people. Does nothing with --json, which prints the report at the end.
void print_figures(const BenchmarkOptions& options, const Json& report) {
  if (options.json) return;
  for (const auto& [key, value] : report.items()) {
    if (key != "breakdown") fmt::print("{}: {}\n", key, value.dump());
  }
}

StepBenchmarkOptions step_options(const BenchmarkOptions& options, const PretrainConfig& config) {
  return {.config = config,
          .lengths = read_lengths(options, config.model.max_position_embeddings),
          .batch = options.batch,
          .steps = options.steps,
          .warmup = options.warmup,
          .breakdown = options.breakdown};
}

void add_shape(Json& report, const BenchmarkOptions& options, const PretrainConfig& config) {
  report["model"] = sizes_of(config.model);
  report["batch"] = options.batch;
  if (options.lengths.empty()) {
    report["length"] = options.length;
  } else {
    report["lengths"] = options.lengths;
  }
  report["steps"] = options.steps;
}

/// Prints the share of each group of operators beside its time at the limits. A limit that is not known is `-`.
void print_breakdown(const Json& breakdown) {
  const Json& limits = breakdown["limits"];
  fmt::print("\nlimits: products {:.2f} TFLOP/s, copies {:.1f} GB/s\n{:<34}{:>9}{:>10}{:>9}{:>11}{:>9}\n",
             limits["gemm_tflops"].get<double>(), limits["copy_gb_per_second"].get<double>(), "group", "calls", "ms",
             "share", "limit, ms", "reached");
  for (const Json& row : breakdown["groups"]) {
    const double ms = row["self_ms"].get<double>();
    const bool known = !row["limit_ms"].is_null();
    fmt::print("{:<34}{:>9.1f}{:>10.3f}{:>7.1f} %{:>11}{:>9}\n", row["group"].get<std::string>(),
               row["calls"].get<double>(), ms, 100 * row["share"].get<double>(),
               known ? fmt::format("{:.3f}", row["limit_ms"].get<double>()) : "-",
               known ? fmt::format("{:.0f} %", 100 * row["limit_ms"].get<double>() / ms) : "-");
  }
}

Json run_step(const BenchmarkOptions& options) {
  PretrainConfig config = read_config(options);
  if (options.precision.empty()) config.precision = "fp32";
  const StepBenchmarkOptions step = step_options(options, config);
  Json report = header(options, select_device(config.device, 0), config.precision);
  add_shape(report, options, config);
  report["optimizer"] = config.optimizer.type;
  report["objective"] = name_of_value(objective_of(config));
  expect_comparable(options, report);
  report.update(benchmark_step(step));
  print_figures(options, report);
  if (options.breakdown && !options.json) print_breakdown(report["breakdown"]);
  return report;
}

/// The model of --checkpoint, or that of --config with random weights.
BertModel model_to_time(const BenchmarkOptions& options) {
  const NoInitWeights no_init;
  if (options.checkpoint.empty()) {
    const PretrainConfig config = read_config(options);
    BertModel model(config.model);
    init_weights(*model, config.model, static_cast<uint64_t>(config.seed));
    return model;
  }
  const Pretrained pretrained = load_pretrained(options.checkpoint, WeightsKind::kAveraged, say_in("bert benchmark"));
  BertForPreTraining whole(pretrained.model.config, has_pairs(pretrained.model.objective));
  load_state_dict(*whole, pretrained.weights);
  return whole->bert;
}

/// One list of lengths for each case: that of the file --lengths, or one of each --length.
std::vector<std::vector<int64_t>> lengths_of_cases(const BenchmarkOptions& options, int64_t limit) {
  if (!options.lengths.empty()) return {read_lengths(options, limit)};
  std::vector<std::vector<int64_t>> cases;
  for (const int64_t length : options.text_lengths) {
    BenchmarkOptions one = options;
    one.length = length;
    cases.push_back(read_lengths(one, limit));
  }
  return cases;
}

void print_inference(const std::string& model, const std::string& precision, const Json& row) {
  fmt::print("| {} | {} | {} | {} | {:.2f}", model, row.contains("length") ? row["length"].dump() : "of --lengths",
             row["batch"].dump(), precision, row["sequences_per_second"].get<double>());
  for (const char* key : {"ms_average", "ms_median", "ms_p90", "ms_p95", "ms_p99", "ms_p100"}) {
    fmt::print(" | {:.2f}", row[key].get<double>());
  }
  fmt::print(" |\n");
  std::fflush(stdout);
}

/// Times the encoder and pooler. Prints a table with the columns of NVIDIA's tables of latency.
Json run_inference(const BenchmarkOptions& options) {
  const c10::Device device = select_device(options.device, 0);
  const std::string precision = options.precision.empty() ? "fp32" : options.precision;
  if (precision == "int8" && !device.is_cpu()) throw UsageError("--precision int8 runs on the CPU; add --device cpu");
  BertModel model = model_to_time(options);
  const BertConfig& config = model->config;
  InferenceBenchmarkOptions timed{.model = model,
                                  .device = device,
                                  .precision = precision,
                                  .batches = options.batches,
                                  .lengths = lengths_of_cases(options, config.max_position_embeddings),
                                  .steps = options.steps,
                                  .warmup = options.warmup};
  Json report = header(options, device, precision);
  if (!options.checkpoint.empty()) report["config"] = options.checkpoint;
  report["model"] = sizes_of(config);
  const bool single = timed.batches.size() * timed.lengths.size() == 1;
  report["batch"] = single ? Json(options.batches.front()) : Json(options.batches);
  if (!options.lengths.empty()) {
    report["lengths"] = options.lengths;
  } else {
    report["length"] = single ? Json(options.text_lengths.front()) : Json(options.text_lengths);
  }
  report["steps"] = options.steps;
  expect_comparable(options, report);
  fmt::print(
      "| Model | Sequence Length | Batch Size | Precision | Throughput-Average(sent/sec) | Latency-Average(ms) | "
      "Latency-50%(ms) | Latency-90%(ms) | Latency-95%(ms) | Latency-99%(ms) | Latency-100%(ms) |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|\n");
  const std::string name =
      fmt::format("{} x {}", config.num_hidden_layers, config.hidden_size);  // layers and hidden size
  model = nullptr;
  Json rows = benchmark_inference(std::move(timed), [&](const Json& row) { print_inference(name, precision, row); });
  if (single) {
    report.update(rows.front());
    return report;
  }
  for (Json& row : rows) {
    row["name"] = fmt::format("batch {}, length {}", row["batch"].dump(),
                              row.contains("length") ? row["length"].dump() : "of the file");
  }
  report["cases"] = std::move(rows);
  return report;
}

/// The settings of a loader without --config.
PretrainConfig loading(const BenchmarkOptions& options) {
  PretrainConfig config;
  config.micro_batch_size = 32;
  config.global_batch_size = 4096;
  config.micro_batch_tokens = options.micro_batch_tokens;
  if (!options.masking.empty()) config.data.masking = options.masking;
  return config;
}

/// The data of --shards.
std::pair<std::shared_ptr<const PretrainingShards>, DataLoaderConfig> shards_to_load(const BenchmarkOptions& options) {
  const PretrainConfig config = loading(options);
  const auto shards = std::make_shared<const PretrainingShards>(options.shards);
  if (config.data.masking != "dynamic") return {shards, loader_config(config, *shards, nullptr)};
  if (options.vocab.empty()) throw UsageError("--masking dynamic needs --vocab with --shards");
  const auto tokenizer = make_tokenizer(options.vocab, {});
  const std::string& checksum = shards->vocabulary_checksum();
  if (!checksum.empty() && tokenizer->vocabulary().hash() != checksum) {
    throw DataError(fmt::format("{} was made with another vocabulary than {}", options.shards.front(), options.vocab));
  }
  return {shards, loader_config(config, *shards, tokenizer.get())};
}

/// The data of --config.
std::pair<std::shared_ptr<const PretrainingShards>, DataLoaderConfig> run_to_load(const BenchmarkOptions& options) {
  PretrainConfig config = load_pretrain_config(options.config, options.overrides);
  if (!options.masking.empty()) config.data.masking = options.masking;
  if (options.micro_batch_tokens > 0) config.micro_batch_tokens = options.micro_batch_tokens;
  const auto tokenizer = load_tokenizer(config);
  const auto shards = open_shards(config, "train", *tokenizer);
  config = with_micro_batch(config, *shards, {}, [](const std::string&) {});
  return {shards, loader_config(config, *shards, tokenizer.get())};
}

/// The loader of the examples that the preparation has made. By default it draws masks and packs micro-batches.
DataLoaderConfig loader_of(const PreparationBenchmark& prepared, const BenchmarkOptions& options) {
  constexpr int64_t kTokens = 8192;
  PretrainConfig config = loading(options);
  if (config.micro_batch_tokens == 0) config.micro_batch_tokens = kTokens;
  if (options.masking.empty()) config.data.masking = "dynamic";
  return loader_config(config, *prepared.shards, prepared.tokenizer.get());
}

/// Times the preparation, unless there are examples already, and the loader of a run of one process in the run's order.
Json run_data(const BenchmarkOptions& options) {
  Json preparation;
  std::shared_ptr<const PretrainingShards> shards;
  DataLoaderConfig loader;
  if (!options.config.empty()) {
    std::tie(shards, loader) = run_to_load(options);
  } else if (!options.shards.empty()) {
    std::tie(shards, loader) = shards_to_load(options);
  } else {
    const PreparationBenchmark prepared =
        benchmark_preparation({.input = options.input, .vocab = options.vocab, .dump = options.dump});
    preparation = prepared.figures;
    shards = prepared.shards;
    loader = loader_of(prepared, options);
  }
  Json report = {{"benchmark", "data"},
                 {"machine", processor_name()},
                 {"data", shards->content_checksum()},
                 {"batch", loader.micro_batch_size},
                 {"micro_batch_tokens", loader.micro_batch_tokens},
                 {"global_batch", loader.global_batch_size},
                 {"masking", loader.masking ? "dynamic" : "static"},
                 {"ranks", options.ranks},
                 {"steps", options.steps}};
  add_config_name(report, options);
  expect_comparable(options, report);
  if (!preparation.is_null()) report.update(preparation);
  report.update(benchmark_data(shards, {.loader = loader,
                                        .steps = options.steps,
                                        .warmup = options.warmup,
                                        .ranks = options.ranks,
                                        .demand = options.demand}));
  print_figures(options, report);
  return report;
}

at::ScalarType dtype_of(const std::string& precision) {
  if (precision == "bf16") return at::kBFloat16;
  return precision == "fp16" ? at::kHalf : at::kFloat;
}

KernelBenchmarkOptions kernel_options(const BenchmarkOptions& options, c10::Device device,
                                      const std::string& precision) {
  KernelBenchmarkOptions kernels{.shape = {}, .filter = options.filter, .seconds = options.seconds};
  KernelShape& shape = kernels.shape;
  shape.device = device;
  shape.dtype = dtype_of(precision);
  constexpr int64_t kHead = 64;  // head size of every published BERT
  if (!options.config.empty()) {
    const BertConfig model = load_pretrain_config(options.config, options.overrides).model;
    shape.hidden = model.hidden_size;
    shape.heads = model.num_attention_heads;
    shape.intermediate = model.intermediate_size;
    shape.vocabulary = model.vocab_size;
  } else {
    shape.hidden = options.hidden > 0 ? options.hidden : device.is_cuda() ? 1024 : 768;
    if (shape.hidden > kHead && shape.hidden % kHead != 0)
      throw UsageError("--hidden " + std::to_string(shape.hidden) + ": expected a multiple of 64, the size of a head");
    shape.heads = std::max<int64_t>(1, shape.hidden / kHead);
    shape.intermediate = 4 * shape.hidden;
  }
  shape.tokens = options.tokens > 0 ? options.tokens : device.is_cuda() ? 32768 : 4096;
  if (shape.tokens % shape.length != 0)
    throw UsageError("--tokens " + std::to_string(shape.tokens) + ": expected a multiple of " +
                     std::to_string(shape.length) + ", the length of attention's sequences");
  return kernels;
}

void print_kernel(const Json& row) {
  if (row.contains("error")) {
    fmt::print("{:<34}{}\n", row["name"].get<std::string>(), row["error"].get<std::string>());
    return;
  }
  const auto number = [&](const char* key) { return row.value(key, 0.0); };
  const std::string speed = row.contains("bytes")
                                ? fmt::format("{:>10.1f} MB {:>8.1f} GB/s {:>6.1f} % of copy", 1e-6 * number("bytes"),
                                              number("gb_per_second"), 100 * number("copy_fraction"))
                                : fmt::format("{:>7.1f} GFLOP {:>6.2f} TFLOP/s {:>4.0f} % of GEMM",
                                              1e-9 * number("flops"), number("tflops"), 100 * number("gemm_fraction"));
  fmt::print("{:<34}{:<9}{:>9.3f} ms +-{:>3.0f} %{}{:>8.2f} x ATen\n", row["name"].get<std::string>(),
             row["pass"].get<std::string>(), number("ms_median"), 50 * number("spread"), speed, number("ratio"));
  std::fflush(stdout);
}

/// Sets `failure` to the exception of an operator that failed; the report has no times for it.
Json run_kernels(const BenchmarkOptions& options, std::exception_ptr& failure) {
  const c10::Device device = select_device(options.device, 0);
  const std::string precision = !options.precision.empty() ? options.precision : device.is_cuda() ? "bf16" : "fp32";
  const KernelBenchmarkOptions kernels = kernel_options(options, device, precision);
  const KernelShape& shape = kernels.shape;
  Json report = header(options, device, precision);
  report["model"] = {{"hidden_size", shape.hidden},
                     {"num_attention_heads", shape.heads},
                     {"intermediate_size", shape.intermediate},
                     {"vocab_size", shape.vocabulary}};
  report["tokens"] = shape.tokens;
  report["length"] = shape.length;
  fmt::print("{}, {}, T = {}, H = {}\n", report["machine"].get<std::string>(), precision, shape.tokens, shape.hidden);
  expect_comparable(options, report);
  KernelTable table = benchmark_kernels(kernels, print_kernel);
  report["kernels"] = std::move(table.rows);
  failure = table.failure;
  return report;
}

/// Prints the old value, the new value and the ratio of every figure, and adds them to the report. False if a ratio is
/// below --fail-below.
bool compare(const BenchmarkOptions& options, Json& report) {
  const auto figures = compare_reports(read_report(options.compare), plain(report));
  const double threshold = options.fail_below > 0 ? options.fail_below : kNoise;
  Json rows = Json::array(), slower = Json::array();
  fmt::print("\n{:<46}{:>12}{:>12}{:>9}\n", "against " + options.compare, "old ms", "new ms", "speed");
  for (const ComparedFigure& figure : figures) {
    const bool is_slower = figure.ratio() < threshold;
    if (is_slower) slower.push_back(figure.name);
    fmt::print("{:<46}{:>12.3f}{:>12.3f}{:>9.2f}{}\n", figure.name, figure.old_ms, figure.new_ms, figure.ratio(),
               is_slower ? "  slower" : "");
    rows.push_back(
        {{"name", figure.name}, {"old_ms", figure.old_ms}, {"new_ms", figure.new_ms}, {"ratio", figure.ratio()}});
  }
  fmt::print("{} of {} figures are below {:.2f} of their old speed\n", slower.size(), figures.size(), threshold);
  report["compare"] = {{"with", options.compare}, {"threshold", threshold}, {"slower", slower}, {"figures", rows}};
  return options.fail_below <= 0 || slower.empty();
}

}  // namespace

int benchmark_command(int argc, char** argv) {
  BenchmarkOptions options;
  if (!parse_benchmark_options(argc, argv, options)) return kOk;
  use_threads(options.threads);
  std::exception_ptr failure;
  Json report = options.mode == "kernels"     ? run_kernels(options, failure)
                : options.mode == "data"      ? run_data(options)
                : options.mode == "inference" ? run_inference(options)
                                              : run_step(options);
  const bool fast_enough = options.compare.empty() || compare(options, report);
  if (options.json) fmt::print("{}\n", report.dump());
  if (failure) std::rethrow_exception(failure);
  return fast_enough ? kOk : kSlower;
}

}  // namespace bert
