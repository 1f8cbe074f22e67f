#include "app/plan/phases.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "app/checkpoint/state.h"
#include "app/config/run_length.h"
#include "app/parse/bounded_json.h"
#include "app/plan/flops.h"
#include "app/plan/memory.h"
#include "app/plan/step_model.h"
#include "app/system/errors.h"
#include "data/formats/shard.h"
#include "data/io/error.h"

namespace bert {
namespace {

Sequence sequence_of_length(int64_t length, const FlopCounter& flops) {
  constexpr double kMaskedShare = 0.15;  // masked_lm_prob of Google's script
  const auto masked = static_cast<int64_t>(std::ceil(kMaskedShare * static_cast<double>(length)));
  return {.tokens = static_cast<double>(length),
          .masked = static_cast<double>(masked),
          .forward_flops = flops.forward_of_sequence(length) + flops.forward_of_heads(masked, 1),
          .longest = static_cast<double>(length),
          .source = {}};
}

Sequence mean_sequence(const std::vector<std::string>& paths, const FlopCounter& flops) {
  constexpr int64_t kSample = 4096;  // rows; their mean length is within 2 % of the mean of all rows
  const PretrainingShards shards(paths);
  const int64_t rows = std::min(kSample, shards.size());
  Sequence sum;
  for (int64_t i = 0; i < rows; ++i) {
    const ShardRow row = shards.row(i * (shards.size() / rows));
    sum.tokens += static_cast<double>(row.length);
    sum.masked += static_cast<double>(row.num_masked);
    sum.forward_flops += flops.forward_of_sequence(row.length) + flops.forward_of_heads(row.num_masked, 1);
  }
  const auto count = static_cast<double>(rows);
  return {.tokens = sum.tokens / count,
          .masked = sum.masked / count,
          .forward_flops = sum.forward_flops / count,
          .longest = static_cast<double>(shards.longest_row()),
          .source = paths.front()};
}

/// `config` with the objective of data.train, if that is there, in place of auto.
PretrainConfig with_objective(PretrainConfig config) {
  if (config.objective) return config;
  try {
    const Shard shard(shard_files(training_paths(config.data).front()).front());
    config.objective = objective_of(shard.manifest());
  } catch (const InputMissing&) {  // a plan may be made before the data
  }
  return config;
}

/// The length of --length, else the mean of data.train, else the default length of `bert data create`.
Sequence find_sequence(const PretrainConfig& config, const PlanOptions& options, size_t phase) {
  constexpr int64_t kDefaultLength = 128;
  const FlopCounter flops(config.model, has_pairs(objective_of(config)));
  if (!options.lengths.empty()) {
    const int64_t length = options.lengths[std::min(phase, options.lengths.size() - 1)];
    if (length > config.model.max_position_embeddings) {
      throw UsageError("--length " + std::to_string(length) + ": model.max_position_embeddings is " +
                       std::to_string(config.model.max_position_embeddings));
    }
    Sequence result = sequence_of_length(length, flops);
    result.source = "--length";
    return result;
  }
  try {
    return mean_sequence(training_paths(config.data), flops);
  } catch (const InputMissing&) {  // a plan may be made before the data
  }
  Sequence result = sequence_of_length(std::min(kDefaultLength, config.model.max_position_embeddings), flops);
  result.source = "assumed: data.train is not there, and --length was not given";
  return result;
}

const GpuModel& find_gpu(const std::string& name) {
  std::string known;
  for (const GpuModel& gpu : gpu_models()) {
    if (name == gpu.name) return gpu;
    known += std::string(known.empty() ? "" : ", ") + gpu.name;
  }
  throw UsageError("--gpu " + name + ": expected one of " + known);
}

const NetworkPort& find_port(const std::string& name) {
  std::string known;
  for (const NetworkPort& port : network_ports()) {
    if (strcasecmp(name.c_str(), port.name) == 0) return port;
    known += std::string(known.empty() ? "" : ", ") + port.name;
  }
  throw UsageError("--network " + name + ": expected one of " + known);
}

/// The measured speed of one GPU in steps of forward, backward and update.
struct Measurement {
  double sequences_per_second = 0;
  int64_t batch = 0;
  OptimizerType optimizer = OptimizerType::kLamb;
  std::string source;  // file or option, for messages
};

/// Reads a report of `bert benchmark step --json`. Throws DataError if the file is another report, or if its model,
/// precision or length differs from the plan, or if only one of the two trains on pairs of segments.
Measurement read_measurement(const std::string& path, const PretrainConfig& config, const Sequence& sequence) {
  constexpr double kSameLength = 0.05;  // share of the mean; a benchmark reads only some of the lengths of a run
  const nlohmann::json report = read_benchmark_report(path);
  const std::string& kind = string_member(report, "benchmark", path);
  if (kind != "step") {
    throw DataError(path + ": a report of `bert benchmark " + kind +
                    "`; expected one of `bert benchmark step --json`, which trains");
  }
  std::string differences;
  const auto expect = [&](const std::string& what, const auto& measured, const auto& planned, bool equal) {
    if (!equal) differences += fmt::format("\n  {}: measured {}, planned {}", what, measured, planned);
  };
  const nlohmann::json& model = member(report, "model", nlohmann::json::value_t::object, path);
  for (const auto& [name, planned] : {std::pair{"vocab_size", config.model.vocab_size},
                                      {"hidden_size", config.model.hidden_size},
                                      {"num_hidden_layers", config.model.num_hidden_layers},
                                      {"num_attention_heads", config.model.num_attention_heads},
                                      {"intermediate_size", config.model.intermediate_size}}) {
    const int64_t measured = integer_member(model, name, path);
    expect(std::string("model.") + name, measured, planned, measured == planned);
  }
  const std::string& precision = string_member(report, "precision", path);
  expect("precision", precision, name_of_value(config.precision), precision == name_of_value(config.precision));
  // Older reports do not say it, and had no other than next sentence.
  const Objective objective =
      report.contains("objective") ? parse_objective(string_member(report, "objective", path), path) : Objective::kNsp;
  expect("objective", name_of_value(objective), name_of_value(objective_of(config)),
         has_pairs(objective) == has_pairs(objective_of(config)));
  const double rate = number_member(report, "sequences_per_second", path);
  if (!(rate > 0)) throw DataError(fmt::format("{}: sequences_per_second is {}, expected more than 0", path, rate));
  const double length = number_member(report, "tokens_per_second", path) / rate;
  expect("tokens of a sequence", std::round(length), std::round(sequence.tokens),
         std::abs(length - sequence.tokens) <= kSameLength * sequence.tokens);
  if (!differences.empty()) {
    throw DataError(path + ": the measurement differs from the plan:" + differences +
                    "\nMeasure with `bert benchmark step --config CONFIG --precision P --length S --json`.");
  }
  const std::string& optimizer = string_member(report, "optimizer", path);
  const auto type = value_named<OptimizerType>(optimizer);
  if (!type) throw DataError(fmt::format("{}: optimizer is {}, which `bert plan` does not know", path, optimizer));
  const int64_t batch = integer_member(report, "batch", path);
  if (batch < 1) throw DataError(fmt::format("{}: batch is {}, expected at least 1", path, batch));
  return {.sequences_per_second = rate, .batch = batch, .optimizer = *type, .source = path};
}

/// The work of a step on each of `gpus` GPUs, without the time of forward and backward.
StepWork work_of(const PretrainConfig& config, int64_t gpus) {
  // Bytes that an update moves per parameter, with gradients of 4 bytes: see cuda_ext/kernels/multi_tensor_optim.cu.
  constexpr double kLambBytes = 44, kAdamBytes = 32, kCopyBytes = 2;
  constexpr double kBucketBytes = 25 * 1024 * 1024;  // DataParallelOptions
  const int64_t micro_batches = (config.global_batch_size + config.micro_batch_size - 1) / config.micro_batch_size;
  const std::vector<int64_t> sizes = parameter_sizes(config);
  const auto parameters = static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
  const double copy =
      config.precision == Precision::kBf16Weights || config.precision == Precision::kFp16Weights ? kCopyBytes : 0;
  const double sent_share =
      config.distributed.compression == GradientCompression::kNone ? 1 : 0.5;  // 2 bytes instead of 4
  const bool sharded = config.distributed.shard_optimizer_state;
  const OptimizerType type = config.optimizer.type;
  const bool two_visits = type == OptimizerType::kLamb || type == OptimizerType::kStableAdamW;
  const double optimizer_bytes = parameters * ((two_visits ? kLambBytes : kAdamBytes) + copy);
  return {.accumulation_steps = (micro_batches + gpus - 1) / gpus,
          .gradient_bytes = sent_share * 4 * parameters,
          .bucket_bytes = sent_share * kBucketBytes,
          .optimizer_bytes = optimizer_bytes * owned_share(config, sizes, gpus),
          .gathered_bytes = sharded ? parameters * (copy > 0 ? 2 : 4) : 0};
}

/// Seconds of forward and backward of a micro-batch: the time of a measured step minus that of its update.
double measured_micro_step(const Measurement& measured, const PretrainConfig& config, const GpuModel& gpu) {
  PretrainConfig as_measured = config;
  as_measured.micro_batch_size = as_measured.global_batch_size = measured.batch;
  as_measured.optimizer.type = measured.optimizer;
  const StepWork work = work_of(as_measured, 1);
  const double step = static_cast<double>(measured.batch) / measured.sequences_per_second;
  const double seconds = fit_micro_step_seconds(work, {.gpu = gpu}, step);
  if (seconds <= 0) {
    throw DataError(fmt::format("{}: a step of {:.3f} ms is shorter than the update alone, {:.3f} ms on --gpu {}",
                                measured.source, 1e3 * step, 1e3 * work.optimizer_bytes / gpu.copy_bandwidth,
                                gpu.name));
  }
  return seconds * static_cast<double>(config.micro_batch_size) / static_cast<double>(measured.batch);
}

/// The peak FLOP/s of a step on the GPU. With fp8 only some products have the rate of FP8, the others that of bf16.
double peak_of_step(const PretrainConfig& config, const Sequence& sequence, const GpuModel& gpu) {
  const double peak = peak_flops(gpu, name_of_value(config.precision)), all = sequence.forward_flops;
  if (config.precision != Precision::kFp8) return peak;
  const double in_fp8 =
      static_cast<double>(config.fp8_layers()) * FlopCounter(config.model).forward_of_weights(sequence.tokens);
  return all / (in_fp8 / peak + (all - in_fp8) / peak_flops(gpu, "bf16"));
}

/// Seconds of forward and backward of a micro-batch at `mfu`, a share of the GPU's peak.
double assumed_micro_step(const PretrainConfig& config, const Sequence& sequence, double mfu, const GpuModel& gpu) {
  // With a small batch the GPU waits for the host. The launches of forward and backward in bf16 were counted on the device
  // of host memory (tests/null_device): 620 of BERT-base, 1,160 of large. The time of one is that of a step of BERT-large
  // with 32 x 128 tokens on an H200 beside a Xeon: 52.5 ms with 1,160 launches and 300 of the update.
  constexpr double kLaunches = 80, kLaunchesPerLayer = 45, kLaunchSeconds = 36e-6;
  const double forwards = config.gradient_checkpointing ? 4 : 3;  // backward takes two forwards
  const double flops = forwards * sequence.forward_flops * static_cast<double>(config.micro_batch_size);
  return std::max(
      flops / (mfu * peak_of_step(config, sequence, gpu)),
      (kLaunches + kLaunchesPerLayer * static_cast<double>(config.model.num_hidden_layers)) * kLaunchSeconds);
}

/// `config` with a number as its micro_batch_size: of the sequences that micro_batch_tokens have room for, or, for auto,
/// of those that an empty GPU of the cluster holds.
PretrainConfig with_micro_batch_size(PretrainConfig config, const Sequence& sequence, const Cluster& cluster) {
  if (config.micro_batch_size == RunConfig::kFromMemory) {
    const SequenceSize longest = {.tokens = sequence.longest,
                                  .masked = std::ceil(sequence.masked / sequence.tokens * sequence.longest)};
    const int64_t largest = largest_micro_batch(config, parameter_sizes(config), longest, cluster.gpus(),
                                                plannable_bytes(config, cluster.gpu.memory, /*is_gpu=*/true));
    config.micro_batch_size = std::max<int64_t>(largest, 1);  // the memory of the plan says that 1 does not fit
  }
  if (config.micro_batch_tokens > 0) {
    const double sequences = static_cast<double>(config.micro_batch_tokens) / sequence.tokens;
    config.micro_batch_size = std::clamp<int64_t>(static_cast<int64_t>(sequences), 1, config.global_batch_size);
  }
  return config;
}

int64_t ports_of(const PlanOptions& options) {
  return find_port(options.network).per_gpu ? std::min<int64_t>(options.gpus, 8) : 1;
}

/// The plan of steps of one size; `config` is without the name of its file.
Phase phase_of(const PretrainConfig& config, const Cluster& cluster, const Sequence& sequence,
               const std::optional<Measurement>& measured, double mfu) {
  const SequenceSize size = {.tokens = sequence.tokens, .masked = sequence.masked};
  MemoryPlan memory = plan_memory(config, parameter_sizes(config), size, cluster.gpus());
  if (config.cuda_graphs != CudaGraphs::kOff && config.evaluate_every > 0)
    memory.beside_graphs = evaluation_bytes(config, parameter_sizes(config), size, kEvaluationBatch);
  StepWork work = work_of(config, cluster.gpus());
  work.micro_step_seconds = measured ? measured_micro_step(*measured, config, cluster.gpu)
                                     : assumed_micro_step(config, sequence, mfu, cluster.gpu);
  return {.config = "",
          .sequence = sequence,
          .parameters = parameter_count(config.model, has_pairs(objective_of(config))),
          .micro_batch_size = config.micro_batch_size,
          .accumulation_steps = work.accumulation_steps,
          .global_batch_size = config.global_batch_size,
          .steps = config.max_steps,
          .measured = measured.has_value(),
          .time = predict_step(work, cluster),
          .memory = memory};
}

}  // namespace

Cluster cluster_of(const PlanOptions& options) {
  return {.nodes = options.nodes,
          .gpus_per_node = options.gpus,
          .gpu = find_gpu(options.gpu),
          .node_bandwidth = static_cast<double>(ports_of(options)) * find_port(options.network).bandwidth};
}

std::vector<Phase> plan_phases(const std::string& path, const PlanOptions& options, size_t index) {
  const PretrainConfig given = with_objective(load_pretrain_config(path, options.overrides));
  const Cluster cluster = cluster_of(options);
  try {
    check_micro_batches(given, cluster.gpus());
  } catch (const ConfigError& error) {
    throw ConfigError(path + ": " + error.what());
  }
  const Sequence sequence = find_sequence(given, options, index);
  PretrainConfig config = with_micro_batch_size(given, sequence, cluster);
  std::optional<Measurement> measured;
  if (index < options.measured.size()) measured = read_measurement(options.measured[index], config, sequence);
  std::vector<Phase> phases;
  double seconds = 3600 * given.max_hours;
  for (const auto& [size, steps] :
       batch_sizes_of(given, sequence.tokens).parts(planned_steps(given, sequence.tokens, /*examples=*/0))) {
    config.global_batch_size = size;
    config.max_steps = steps;
    Phase phase = phase_of(config, cluster, sequence, measured, options.mfu);
    phase.config = path;
    if (given.max_hours > 0) {
      phase.steps = std::min(steps, static_cast<int64_t>(seconds / phase.time.total()));
      seconds -= static_cast<double>(phase.steps) * phase.time.total();
    }
    phases.push_back(std::move(phase));
  }
  return phases;
}

nlohmann::ordered_json to_json(const Phase& phase) {
  return {{"config", phase.config},
          {"parameters", phase.parameters},
          {"tokens_per_sequence", phase.sequence.tokens},
          {"micro_batch_size", phase.micro_batch_size},
          {"gradient_accumulation_steps", phase.accumulation_steps},
          {"global_batch_size", phase.global_batch_size},
          {"measured", phase.measured},
          {"step_ms", 1e3 * phase.time.total()},
          {"compute_ms", 1e3 * phase.time.compute},
          {"communication_ms", 1e3 * phase.time.communication},
          {"exposed_communication_ms", 1e3 * phase.time.exposed},
          {"optimizer_ms", 1e3 * phase.time.optimizer},
          {"sequences_per_second", phase.sequences_per_second()},
          {"memory_bytes", phase.memory.total()},
          {"steps", phase.steps},
          {"days", phase.days()}};
}

void print_plan(const std::vector<Phase>& phases, const PlanOptions& options) {
  const Cluster cluster = cluster_of(options);
  const int64_t ports = ports_of(options);
  fmt::print("{} {} {}, {} on each{}\n", cluster.gpus(), cluster.gpu.name, cluster.gpus() == 1 ? "GPU" : "GPUs",
             cluster.gpus_per_node,
             cluster.nodes == 1 ? std::string(" of 1 node")
                                : fmt::format(" of {} nodes with {} {} port{} each: {:.0f} GB/s", cluster.nodes, ports,
                                              options.network, ports == 1 ? "" : "s", cluster.node_bandwidth / 1e9));
  double days = 0;
  for (const Phase& p : phases) {
    fmt::print("\n{}: {} parameters, batch {} x {:.0f} tokens ({})\n", p.config, p.parameters, p.global_batch_size,
               p.sequence.tokens, p.sequence.source);
    fmt::print("  on each GPU    {} micro-batch{} of {}\n", p.accumulation_steps, p.accumulation_steps == 1 ? "" : "es",
               p.micro_batch_size);
    fmt::print(
        "  step           {:.1f} ms: compute {:.1f}, communication {:.1f} of {:.1f} (the rest is hidden), update "
        "{:.1f}\n",
        1e3 * p.time.total(), 1e3 * p.time.compute, 1e3 * p.time.exposed, 1e3 * p.time.communication,
        1e3 * p.time.optimizer);
    fmt::print("  throughput     {:.0f} sequences/s\n", p.sequences_per_second());
    fmt::print(
        "  memory         {:.1f} GB at least of {:.0f}: weights {:.1f}, gradients {:.1f}, optimizer {:.1f}, "
        "activations {:.1f}{}{}\n",
        p.memory.total() / 1e9, cluster.gpu.memory / 1e9, p.memory.weights / 1e9, p.memory.gradients / 1e9,
        p.memory.optimizer / 1e9, p.memory.activations / 1e9,
        p.memory.beside_graphs > 0 ? fmt::format(", evaluations beside graphs {:.1f}", p.memory.beside_graphs / 1e9)
                                   : "",
        p.memory.total() > cluster.gpu.memory ? "  DOES NOT FIT: lower micro_batch_size" : "");
    fmt::print("  duration       {} steps, {:.2f} days ({:.1f} hours)\n", p.steps, p.days(), 24 * p.days());
    days += p.days();
  }
  if (phases.size() > 1) fmt::print("\ntogether         {:.2f} days ({:.1f} hours)\n", days, 24 * days);
  if (std::ranges::any_of(phases, [](const Phase& p) { return !p.measured; })) {
    fmt::print(
        "\nAssumed: {:.0f} % of the GPU's peak in forward and backward (--mfu). `bert benchmark step --json` on one "
        "GPU measures "
        "it: give its output with --measured.\n",
        100 * options.mfu);
  }
}

}  // namespace bert
