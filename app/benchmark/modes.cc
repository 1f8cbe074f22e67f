#include "app/benchmark/modes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "app/benchmark/data.h"
#include "app/benchmark/inference.h"
#include "app/benchmark/preparation.h"
#include "app/benchmark/report.h"
#include "app/benchmark/step.h"
#include "app/cli/command_line.h"
#include "app/config/pretrain_config.h"
#include "app/device/device.h"
#include "app/inference/predictor.h"
#include "app/inference/pretrained.h"
#include "app/parse/bounded_json.h"
#include "app/system/errors.h"
#include "app/system/machine/memory.h"
#include "app/train/micro_batch.h"
#include "app/train/run_inputs.h"
#include "app/train/run_loader.h"
#include "app/train/step/training_step.h"
#include "cuda_ext/compat.h"
#include "cuda_ext/instruction_sets.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "model/initialization.h"
#include "model/state_dict.h"
#include "optim/amp.h"

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
  if (const auto precision = value_named<Precision>(options.precision)) config.precision = *precision;  // else int8
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
  if (device.is_cpu()) {
    report["threads"] = torch::get_num_threads();
    report["instruction_sets"] = instruction_sets();
  }
  return report;
}

nlohmann::json plain(const Json& report) { return nlohmann::json::parse(report.dump()); }

/// Adds the rates of products on the CPU, beside which a time is read.
void add_product_rates(Json& report, c10::Device device) {
  if (!device.is_cpu()) return;
  for (const auto& [precision, rate] : product_rates()) report["product_tflops"][precision] = rate;
}

/// Throws before the work if the report of --compare cannot be compared with this one (check_comparable()).
void expect_comparable(const BenchmarkOptions& options, const Json& report) {
  if (!options.compare.empty()) check_comparable(read_benchmark_report(options.compare), plain(report));
}

/// Prints the figures for people. Does nothing with --json, which prints the report at the end.
void print_figures(const BenchmarkOptions& options, const Json& report) {
  if (options.json) return;
  for (const auto& [key, value] : report.items()) {
    if (key != "breakdown" && key != "products") fmt::print("{}: {}\n", key, value.dump());
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

void print_products(const Json& products) {
  fmt::print("\n{:<24}{:<14}{:>9}{:>9}{:>9}{:>10}{:>10}\n", "product of a layer", "pass", "rows", "columns", "inner",
             "ms", "TFLOP/s");
  for (const Json& row : products) {
    fmt::print("{:<24}{:<14}{:>9}{:>9}{:>9}{:>10.3f}{:>10.2f}\n", row["product"].get<std::string>(),
               row["pass"].get<std::string>(), row["rows"].get<int64_t>(), row["columns"].get<int64_t>(),
               row["inner"].get<int64_t>(), row["ms"].get<double>(), row["tflops"].get<double>());
  }
}

/// Prints the share of each group of operators beside its time at the limits. A limit that is not known is `-`.
void print_breakdown(const Json& breakdown) {
  const Json& limits = breakdown["limits"];
  fmt::print("\na step: {:.1f} ms, with the profiler {:.1f} ms\n", breakdown["unprofiled_ms"].get<double>(),
             breakdown["step_ms"].get<double>());
  fmt::print("limits: products {:.2f} TFLOP/s, copies {:.1f} GB/s\n{:<34}{:>9}{:>10}{:>9}{:>11}{:>9}\n",
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
  fmt::print("largest gaps, ms beyond the limit:");
  for (const Json& gap : breakdown["gaps"])
    fmt::print(" {} {:.3f};", gap["group"].get<std::string>(), gap["gap_ms"].get<double>());
  fmt::print("\n");
}

Json run_step(const BenchmarkOptions& options) {
  PretrainConfig config = read_config(options);
  if (options.precision.empty()) config.precision = Precision::kFp32;
  StepBenchmarkOptions step = step_options(options, config);
  const c10::Device device = select_device(config.device, 0);
  Json report = header(options, device, name_of_value(config.precision)), products;
  add_shape(report, options, config);
  report["optimizer"] = name_of_value(config.optimizer.type);
  report["objective"] = name_of_value(objective_of(config));
  expect_comparable(options, report);
  add_product_rates(products, device);
  const c10::ScalarType dtype = compute_dtype(config.precision);
  const char* const name = dtype == torch::kFloat ? "fp32" : dtype == torch::kBFloat16 ? "bf16" : "";
  if (device.is_cpu() && *name != '\0') step.product_flops = 1e12 * products["product_tflops"][name].get<double>();
  report.update(benchmark_step(step));
  if (device.is_cpu()) report.update(products);
  print_figures(options, report);
  if (!options.json) print_products(report["products"]);
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
  BertModel model(pretrained.model.config, pretrained.weights.contains("bert.pooler.dense.weight"));
  StateDict encoder;
  for (const auto& item : pretrained.weights) {
    if (const std::string& name = item.key(); name.starts_with(kEncoderPrefix))
      encoder.insert(name.substr(std::string_view(kEncoderPrefix).size()), item.value());
  }
  load_state_dict(*model, encoder);
  return model;
}

/// Times the way from texts to their vectors.
Json run_embedding(const BenchmarkOptions& options, const std::string& precision, c10::Device device) {
  const bool int8 = precision == "int8";
  PredictorOptions how{.device = device, .int8 = int8};
  if (!options.batches.empty()) how.batch_size = options.batches.front();
  if (!int8) how.dtype = compute_dtype(value_named<Precision>(precision).value());
  const Predictor predictor(
      load_pretrained({options.checkpoint, false, Task::kEmbedding}, WeightsKind::kAveraged, say_in("bert benchmark")),
      how);
  keep_large_blocks();
  std::vector<std::string> texts;
  std::istringstream lines(read_file(options.input.front()));
  for (std::string text; std::getline(lines, text);) texts.push_back(text);
  if (texts.empty()) throw DataError(options.input.front() + ": has no text");
  Json report = header(options, device, precision);
  report.update({{"config", options.checkpoint}, {"task", "embedding"}, {"input", options.input.front()}});
  report.update({{"batch", how.batch_size}, {"texts", texts.size()}, {"model", sizes_of(predictor.config())}});
  expect_comparable(options, report);
  const AnswerOptions cut{.long_texts = LongTexts::kTruncate};
  constexpr size_t kWarmup = 64;
  constexpr double kSeconds = 2;
  static_cast<void>(
      predictor.encode({texts.begin(), texts.begin() + std::min<std::ptrdiff_t>(kWarmup, std::ssize(texts))}, cut));
  const auto start = std::chrono::steady_clock::now();
  double seconds = 0;
  int64_t passes = 0;
  for (; seconds < kSeconds; ++passes) {
    static_cast<void>(predictor.encode(texts, cut));
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  report["passes"] = passes;
  report["sequences_per_second"] = static_cast<double>(passes * std::ssize(texts)) / seconds;
  add_product_rates(report, device);
  fmt::print("{} texts, {}: {:.1f} texts/s\n", texts.size(), precision, report["sequences_per_second"].get<double>());
  return report;
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
  if (options.embedding) return run_embedding(options, precision, device);
  BertModel model = model_to_time(options);
  const BertConfig& config = model->config;
  InferenceBenchmarkOptions timed{.model = model,
                                  .device = device,
                                  .precision = precision,
                                  .lengths = lengths_of_cases(options, config.max_position_embeddings),
                                  .steps = options.steps,
                                  .warmup = options.warmup};
  if (!options.batches.empty()) timed.batches = options.batches;
  Json report = header(options, device, precision);
  if (!options.checkpoint.empty()) report["config"] = options.checkpoint;
  report["model"] = sizes_of(config);
  const bool single = timed.batches.size() * timed.lengths.size() == 1;
  report["batch"] = single ? Json(timed.batches.front()) : Json(timed.batches);
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
  add_product_rates(report, device);
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

/// The data of --config.
std::pair<std::shared_ptr<const PretrainingShards>, DataLoaderConfig> run_to_load(const BenchmarkOptions& options) {
  PretrainConfig config = load_pretrain_config(options.config, options.overrides);
  if (!options.masking.empty()) config.data.masking = value_named<Masking>(options.masking).value();
  const auto tokenizer = load_tokenizer(config);
  const auto shards = open_shards(config, "train", *tokenizer);
  config = with_micro_batch(config, *shards, {}, [](const std::string&) {});
  return {shards, loader_config(config, *shards, tokenizer.get())};
}

/// The loader of the examples that the preparation has made. By default it draws masks; it packs micro-batches.
DataLoaderConfig loader_of(const PreparationBenchmark& prepared, const BenchmarkOptions& options) {
  PretrainConfig config;
  config.micro_batch_size = 32;
  config.global_batch_size = 4096;
  config.micro_batch_tokens = 8192;
  config.data.masking = options.masking.empty() ? Masking::kDynamic : value_named<Masking>(options.masking).value();
  return loader_config(config, *prepared.shards, prepared.tokenizer.get());
}

/// Times the preparation, unless there are examples already, and the loader of a run of one process in the run's order.
Json run_data(const BenchmarkOptions& options) {
  Json preparation;
  std::shared_ptr<const PretrainingShards> shards;
  DataLoaderConfig loader;
  if (!options.config.empty()) {
    std::tie(shards, loader) = run_to_load(options);
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
                 {"steps", options.steps}};
  add_config_name(report, options);
  expect_comparable(options, report);
  if (!preparation.is_null()) report.update(preparation);
  report.update(benchmark_data(shards, {.loader = loader, .steps = options.steps, .warmup = options.warmup}));
  print_figures(options, report);
  return report;
}

/// Prints the old value, the new value and the ratio of every figure, and adds them to the report. False if a ratio is
/// below --fail-below.
bool compare(const BenchmarkOptions& options, Json& report) {
  const auto figures = compare_reports(read_benchmark_report(options.compare), plain(report));
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

bool run_benchmark(const BenchmarkOptions& options) {
  Json report = options.mode == "data"        ? run_data(options)
                : options.mode == "inference" ? run_inference(options)
                                              : run_step(options);
  const bool fast_enough = options.compare.empty() || compare(options, report);
  if (options.json) fmt::print("{}\n", report.dump());
  return fast_enough;
}

}  // namespace bert
