#include "app/benchmark/step.h"

#include <torch/types.h>

#include <chrono>
#include <functional>

#include "app/benchmark/products.h"
#include "app/benchmark/random_batch.h"
#include "app/benchmark/report.h"
#include "app/device/device.h"
#include "app/plan/flops.h"
#include "app/plan/memory.h"
#include "app/profile/step_profile.h"
#include "app/train/step/training_step.h"
#include "cuda_ext/compat.h"
#include "optim/amp.h"

namespace bert {
namespace {

double seconds_of(c10::Device device, const std::function<void()>& work) {
  synchronize(device);
  const auto start = std::chrono::steady_clock::now();
  work();
  synchronize(device);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The breakdown of a step with each of the batches 0 to `steps` - 1. Each step is made twice, with the profiler and
/// without, so that the difference of the two times is the profiler's own work, also on a machine whose speed changes.
nlohmann::ordered_json profiled(TrainingStep& training, int64_t steps, const DeviceLimits& limits,
                                const std::function<PackedBatch(int64_t i)>& batch_of) {
  const c10::Device device = training.device();
  ProfileTimes times;
  double unprofiled = 0;
  for (int64_t i = 0; i < steps; ++i) {
    const PackedBatch batch = batch_of(i);
    const auto step = [&] { training.run({&batch, 1}); };
    unprofiled += seconds_of(device, step);
    Profiler profiler(device);
    seconds_of(device, step);
    times.add(profiler.stop(/*trace=*/{}));
  }
  // fp32: the gradient, the weight and two moments are read, the weight and the moments are written.
  constexpr int64_t kUpdateBytes = 7 * 4;
  int64_t parameters = 0;
  for (const torch::Tensor& parameter : training.module().parameters()) parameters += parameter.numel();
  nlohmann::ordered_json report = {{"unprofiled_ms", 1e3 * unprofiled / static_cast<double>(steps)}};
  report.update(breakdown(times, limits, steps, kUpdateBytes * parameters));
  return report;
}

}  // namespace

nlohmann::ordered_json benchmark_step(const StepBenchmarkOptions& options) {
  const c10::Device device = select_device(options.config.device, 0);
  TrainingStep step(options.config, device, nullptr);
  auto generator = at::make_generator<at::CPUGeneratorImpl>(0);
  const FlopCounter flops(options.config.model, has_pairs(objective_of(options.config)));
  std::vector<double> seconds;
  double total_flops = 0;
  int64_t tokens = 0, masked = 0;
  const auto lengths_of = [&](int64_t i) { return lengths_in_turn(options.lengths, i * options.batch, options.batch); };
  const auto batch_of = [&](int64_t i) {
    const RandomBatchOptions shape{
        .lengths = lengths_of(i), .vocab_size = options.config.model.vocab_size, .first_sequence = i * options.batch};
    return random_batch(shape, generator).to(device);
  };
  for (int64_t i = 0; i < options.warmup + options.steps; ++i) {
    const PackedBatch batch = batch_of(i);
    const double taken = seconds_of(device, [&] { step.run({&batch, 1}); });
    if (i < options.warmup) continue;
    seconds.push_back(taken);
    tokens += batch.num_tokens();
    masked += batch.num_masked();
    for (const int64_t length : lengths_of(i)) total_flops += 3 * flops.forward_of_sequence(length);
    total_flops += 3 * flops.forward_of_heads(batch.num_masked(), options.batch);
  }
  double total = 0;
  for (const double s : seconds) total += s;
  const auto peak_bytes = static_cast<double>(device.is_cuda() ? compat::peak_memory(device) : peak_resident_bytes());
  const c10::ScalarType dtype = compute_dtype(options.config.precision);
  const DeviceLimits limits{
      .flops_per_second = options.product_flops > 0 ? options.product_flops : measure_gemm(device, dtype),
      .bytes_per_second = measure_copy(device)};
  const auto sequences = static_cast<double>(options.batch * options.steps);
  const SequenceSize mean{.tokens = static_cast<double>(tokens) / sequences,
                          .masked = static_cast<double>(masked) / sequences};
  nlohmann::ordered_json report = {{"sequences_per_second", sequences / total},
                                   {"tokens_per_second", static_cast<double>(tokens) / total},
                                   {"tflops", 1e-12 * total_flops / total},
                                   {"mfu", total_flops / total / limits.flops_per_second}};
  report.update(percentiles(seconds));
  report["limits"] = limits_json(limits);
  report["memory"] = {
      {"planned_bytes", plan_memory(options.config, parameter_sizes(options.config), mean, /*ranks=*/1).total()},
      {"peak_bytes", peak_bytes}};
  report["products"] = benchmark_products(options.config.model, tokens / options.steps, device, dtype);
  if (options.breakdown) {
    report["breakdown"] =
        profiled(step, options.steps, limits, [&](int64_t i) { return batch_of(options.warmup + options.steps + i); });
  }
  return report;
}

}  // namespace bert
