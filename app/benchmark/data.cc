#include "app/benchmark/data.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "app/benchmark/report.h"

namespace bert {

namespace {

using Clock = std::chrono::steady_clock;

/// Seconds that the processors have spent in this process.
double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// The wait of a trainer that takes kDemand tokens a second.
nlohmann::ordered_json wait_of_trainer(const std::shared_ptr<const PretrainingShards>& shards,
                                       const DataLoaderConfig& config) {
  constexpr double kSeconds = 1;  // of the measurement
  constexpr int kLeastSteps = 2;
  PretrainingDataLoader loader(shards, config);
  const auto compute = [&](int64_t tokens) {
    std::this_thread::sleep_for(
        std::chrono::duration<double>(static_cast<double>(tokens) / DataBenchmarkOptions::kDemand));
  };
  compute(loader.next_step().num_tokens());  // nothing is made ahead of the first step
  const auto start = Clock::now();
  double elapsed = 0, waited = 0;
  for (int i = 0; i < kLeastSteps || elapsed < kSeconds; ++i) {
    const GlobalStep step = loader.next_step();
    waited += step.seconds_waited;
    compute(step.num_tokens());
    elapsed = std::chrono::duration<double>(Clock::now() - start).count();
  }
  return {{"demand_tokens_per_second", DataBenchmarkOptions::kDemand},
          {"data_wait_seconds", waited},
          {"data_wait_share", waited / elapsed}};
}

}  // namespace

nlohmann::ordered_json benchmark_data(const std::shared_ptr<const PretrainingShards>& shards,
                                      const DataBenchmarkOptions& options) {
  PretrainingDataLoader loader(shards, options.loader);
  for (int64_t batches = 0; batches < options.warmup;) batches += std::ssize(loader.next_step().micro_batches);
  std::vector<double> seconds;
  int64_t sequences = 0, tokens = 0, masked = 0, bytes = 0, capacity = 0;
  const double cpu_before = processor_seconds();
  while (std::ssize(seconds) < options.steps) {
    const GlobalStep step = loader.next_step();
    const size_t batches = step.micro_batches.size();
    seconds.insert(seconds.end(), batches, step.seconds_waited / static_cast<double>(batches));
    sequences += std::ssize(step.places);
    tokens += step.num_tokens();
    capacity += step.capacity;
    for (const PackedBatch& batch : step.micro_batches) masked += batch.num_masked() - batch.padding.masked;
    for (const ExampleOrder::Place& place : step.places) bytes += shards->bytes_of_row(place.example);
  }
  const double total = std::accumulate(seconds.begin(), seconds.end(), 0.0), cpu = processor_seconds() - cpu_before;
  nlohmann::ordered_json report = {{"sequences_per_second", static_cast<double>(sequences) / total},
                                   {"tokens_per_second", static_cast<double>(tokens) / total},
                                   {"tokens_per_second_per_core", static_cast<double>(tokens) / cpu},
                                   {"megabytes_per_second", 1e-6 * static_cast<double>(bytes) / total}};
  report.update({{"fill", static_cast<double>(tokens) / static_cast<double>(capacity)},
                 {"masked_share", static_cast<double>(masked) / static_cast<double>(tokens)}});
  report.update(percentiles(seconds));
  report.update(wait_of_trainer(shards, options.loader));
  return report;
}

}  // namespace bert
