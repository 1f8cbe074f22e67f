#include "app/benchmark/communication.h"

#include <torch/types.h>

#include <chrono>
#include <vector>

#include "app/benchmark/random_batch.h"
#include "app/benchmark/report.h"
#include "app/train/step/device.h"
#include "app/train/step/training_step.h"
#include "optim/data_parallel.h"

namespace bert {
namespace {

/// Milliseconds of `work` on this rank, from the moment when all ranks are ready until its result is there.
template <class Work>
double time_of(const ProcessGroupPtr& group, c10::Device device, const Work& work) {
  synchronize(device);
  barrier(group);
  const auto start = std::chrono::steady_clock::now();
  work();
  synchronize(device);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

nlohmann::ordered_json benchmark_communication(const CommunicationBenchmarkOptions& options,
                                               const ProcessGroupPtr& group) {
  const c10::Device device = select_device(options.config.device, options.local_rank);
  int64_t bytes = 0;
  std::vector<double> one, bucketed, steps, exposed, shares;
  {
    std::vector<NamedParameter> parameters;
    const NoInitWeights no_init;  // only the shapes are used
    for (const auto& item : BertForPreTraining(options.config.model)->named_parameters()) {
      parameters.push_back({item.key(), torch::zeros(item.value().sizes(), device).requires_grad_()});
    }
    DataParallel parallel(group, parameters,
                          {.bucket_bytes = options.config.distributed.bucket_mb << 20,
                           .compression = parse_gradient_compression(options.config.distributed.compression),
                           .mean_over_ranks = false});
    const torch::Tensor whole = torch::zeros_like(parallel.buffers().front());
    bytes = static_cast<int64_t>(whole.nbytes());
    for (int64_t i = 0; i < options.warmup + options.steps; ++i) {
      const double one_ms = time_of(group, device, [&] { all_reduce(group, whole); });
      parallel.expect_reduction(true);
      const double bucketed_ms = time_of(group, device, [&] { parallel.finish(); });
      if (i < options.warmup) continue;
      one.push_back(one_ms);
      bucketed.push_back(bucketed_ms);
    }
  }
  TrainingStep step(options.config, device, group);
  step.broadcast_parameters();
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(get_rank(group)));
  for (int64_t i = 0; i < options.warmup + options.steps; ++i) {
    const PackedBatch batch =
        random_batch({.lengths = std::vector<int64_t>(static_cast<size_t>(options.batch), options.length),
                      .vocab_size = options.config.model.vocab_size,
                      .first_sequence = (i * get_world_size(group) + get_rank(group)) * options.batch},
                     generator)
            .to(device);
    const double step_ms = time_of(group, device, [&] { step.run({&batch, 1}); });
    if (i < options.warmup) continue;
    steps.push_back(step_ms);
    exposed.push_back(step.exposed_communication_ms());
    shares.push_back(exposed.back() / step_ms);
  }
  const double one_ms = Quantiles(one).at(0.5), bucketed_ms = Quantiles(bucketed).at(0.5);
  const auto gb_per_second = [&](double ms) { return 1e-6 * static_cast<double>(bytes) / ms; };
  return {{"bytes", bytes},
          {"one_ms", one_ms},
          {"one_gb_per_second", gb_per_second(one_ms)},
          {"ms_median", bucketed_ms},
          {"bucketed_gb_per_second", gb_per_second(bucketed_ms)},
          {"bandwidth_fraction", one_ms / bucketed_ms},
          {"step_ms", Quantiles(steps).at(0.5)},
          {"exposed_ms", Quantiles(exposed).at(0.5)},
          {"exposed_share", Quantiles(shares).at(0.5)}};
}

}  // namespace bert
