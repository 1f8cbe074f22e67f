#include "app/benchmark/step.h"

#include <torch/types.h>

#include <chrono>

#include "app/benchmark/random_batch.h"
#include "app/benchmark/report.h"
#include "app/plan/flops.h"
#include "app/train/step/device.h"
#include "app/train/step/training_step.h"
#include "optim/amp.h"

namespace bert {

nlohmann::ordered_json benchmark_step(const StepBenchmarkOptions& options) {
  const c10::Device device = select_device(options.config.device, 0);
  TrainingStep step(options.config, device, nullptr);
  auto generator = at::make_generator<at::CPUGeneratorImpl>(0);
  const FlopCounter flops(options.config.model, has_pairs(objective_of(options.config)));
  std::vector<double> seconds;
  double total_flops = 0;
  int64_t tokens = 0;
  for (int64_t i = 0; i < options.warmup + options.steps; ++i) {
    const std::vector<int64_t> lengths = lengths_in_turn(options.lengths, i * options.batch, options.batch);
    const PackedBatch batch =
        random_batch(
            {.lengths = lengths, .vocab_size = options.config.model.vocab_size, .first_sequence = i * options.batch},
            generator)
            .to(device);
    synchronize(device);
    const auto start = std::chrono::steady_clock::now();
    step.run({&batch, 1});
    synchronize(device);
    if (i < options.warmup) continue;
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    tokens += batch.num_tokens();
    for (const int64_t length : lengths) total_flops += 3 * flops.forward_of_sequence(length);
    total_flops += 3 * flops.forward_of_heads(batch.num_masked(), options.batch);
  }
  double total = 0;
  for (const double s : seconds) total += s;
  nlohmann::ordered_json report = {
      {"sequences_per_second", static_cast<double>(options.batch * options.steps) / total},
      {"tokens_per_second", static_cast<double>(tokens) / total},
      {"tflops", 1e-12 * total_flops / total},
      {"mfu", total_flops / total / measure_gemm(device, compute_dtype(parse_precision(options.config.precision)))}};
  report.update(percentiles(seconds));
  return report;
}

}  // namespace bert
