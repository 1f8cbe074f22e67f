#include "app/benchmark/step.h"

#include <torch/types.h>

#include <chrono>
#include <functional>

#include "app/benchmark/random_batch.h"
#include "app/benchmark/report.h"
#include "app/plan/flops.h"
#include "app/profile/step_profile.h"
#include "app/train/step/device.h"
#include "app/train/step/training_step.h"
#include "optim/amp.h"

namespace bert {
namespace {

/// The breakdown of `steps` steps, made by `step(i)`, after those that were timed.
nlohmann::ordered_json profiled(const TrainingStep& training, int64_t steps, double gemm_flops,
                                const std::function<void(int64_t i)>& step) {
  const c10::Device device = training.device();
  Profiler profiler(device);
  for (int64_t i = 0; i < steps; ++i) step(i);
  synchronize(device);
  const ProfileTimes times = profiler.stop(/*trace=*/{});
  // fp32: the gradient, the weight and two moments are read, the weight and the moments are written.
  constexpr int64_t kUpdateBytes = 7 * 4;
  int64_t parameters = 0;
  for (const torch::Tensor& parameter : training.module().parameters()) parameters += parameter.numel();
  return breakdown(times, {.flops_per_second = gemm_flops, .bytes_per_second = measure_copy(device)}, steps,
                   kUpdateBytes * parameters);
}

}  // namespace

nlohmann::ordered_json benchmark_step(const StepBenchmarkOptions& options) {
  const c10::Device device = select_device(options.config.device, 0);
  TrainingStep step(options.config, device, nullptr);
  auto generator = at::make_generator<at::CPUGeneratorImpl>(0);
  const FlopCounter flops(options.config.model, has_pairs(objective_of(options.config)));
  std::vector<double> seconds;
  double total_flops = 0;
  int64_t tokens = 0;
  const auto lengths_of = [&](int64_t i) { return lengths_in_turn(options.lengths, i * options.batch, options.batch); };
  const auto batch_of = [&](int64_t i) {
    const RandomBatchOptions shape{
        .lengths = lengths_of(i), .vocab_size = options.config.model.vocab_size, .first_sequence = i * options.batch};
    return random_batch(shape, generator).to(device);
  };
  for (int64_t i = 0; i < options.warmup + options.steps; ++i) {
    const PackedBatch batch = batch_of(i);
    synchronize(device);
    const auto start = std::chrono::steady_clock::now();
    step.run({&batch, 1});
    synchronize(device);
    if (i < options.warmup) continue;
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    tokens += batch.num_tokens();
    for (const int64_t length : lengths_of(i)) total_flops += 3 * flops.forward_of_sequence(length);
    total_flops += 3 * flops.forward_of_heads(batch.num_masked(), options.batch);
  }
  double total = 0;
  for (const double s : seconds) total += s;
  const double gemm_flops = measure_gemm(device, compute_dtype(parse_precision(options.config.precision)));
  nlohmann::ordered_json report = {{"sequences_per_second", static_cast<double>(options.batch * options.steps) / total},
                                   {"tokens_per_second", static_cast<double>(tokens) / total},
                                   {"tflops", 1e-12 * total_flops / total},
                                   {"mfu", total_flops / total / gemm_flops}};
  report.update(percentiles(seconds));
  if (options.breakdown) {
    report["breakdown"] = profiled(step, options.steps, gemm_flops, [&](int64_t i) {
      const PackedBatch batch = batch_of(options.warmup + options.steps + i);
      step.run({&batch, 1});
    });
  }
  return report;
}

}  // namespace bert
