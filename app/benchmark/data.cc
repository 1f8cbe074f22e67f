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

/// The tokens of one step of the loader.
int64_t take_step(PretrainingDataLoader& loader) {
  int64_t tokens = 0;
  do {
    tokens += loader.next().num_tokens();
  } while (!loader.between_steps());
  return tokens;
}

nlohmann::ordered_json deal_step(const std::shared_ptr<const PretrainingShards>& shards,
                                 const DataBenchmarkOptions& options) {
  int64_t least = INT64_MAX, most = 0;
  for (int64_t rank = 0; rank < options.ranks; ++rank) {
    DataLoaderConfig config = options.loader;
    config.rank = rank;
    config.world_size = options.ranks;
    PretrainingDataLoader loader(shards, config);
    const int64_t tokens = take_step(loader);
    least = std::min(least, tokens);
    most = std::max(most, tokens);
  }
  return {{"least", least}, {"most", most}};
}

/// The wait of a trainer that takes `demand` tokens a second.
nlohmann::ordered_json wait_at(double demand, const std::shared_ptr<const PretrainingShards>& shards,
                               const DataLoaderConfig& config) {
  constexpr double kSeconds = 1;  // of the measurement
  constexpr int kLeastSteps = 2;
  PretrainingDataLoader loader(shards, config);
  const auto compute = [&](int64_t tokens) {
    std::this_thread::sleep_for(std::chrono::duration<double>(static_cast<double>(tokens) / demand));
  };
  compute(take_step(loader));  // nothing is made ahead of the first step
  const double waited_before = loader.seconds_waited();
  const auto start = Clock::now();
  double elapsed = 0;
  for (int step = 0; step < kLeastSteps || elapsed < kSeconds; ++step) {
    compute(take_step(loader));
    elapsed = std::chrono::duration<double>(Clock::now() - start).count();
  }
  const double waited = loader.seconds_waited() - waited_before;
  return {{"demand_tokens_per_second", demand}, {"data_wait_seconds", waited}, {"data_wait_share", waited / elapsed}};
}

}  // namespace

nlohmann::ordered_json benchmark_data(const std::shared_ptr<const PretrainingShards>& shards,
                                      const DataBenchmarkOptions& options) {
  PretrainingDataLoader loader(shards, options.loader);
  for (int64_t i = 0; i < options.warmup; ++i) loader.next();
  std::vector<double> seconds;
  int64_t sequences = 0, tokens = 0, masked = 0, bytes = 0;
  const double cpu_before = processor_seconds();
  for (int64_t i = 0; i < options.steps; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const PackedBatch batch = loader.next();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    tokens += batch.num_tokens();
    masked += batch.num_masked();
    for (const int64_t sequence : sequence_numbers(batch)) {
      ++sequences;
      bytes += shards->bytes_of_row(loader.example_of_sequence(sequence));
    }
  }
  const double total = std::accumulate(seconds.begin(), seconds.end(), 0.0), cpu = processor_seconds() - cpu_before;
  nlohmann::ordered_json report = {{"sequences_per_second", static_cast<double>(sequences) / total},
                                   {"tokens_per_second", static_cast<double>(tokens) / total},
                                   {"tokens_per_second_per_core", static_cast<double>(tokens) / cpu},
                                   {"megabytes_per_second", 1e-6 * static_cast<double>(bytes) / total}};
  report.update({{"fill", static_cast<double>(tokens) / static_cast<double>(options.steps * loader.capacity())},
                 {"masked_share", static_cast<double>(masked) / static_cast<double>(tokens)},
                 {"tokens_per_rank", deal_step(shards, options)}});
  report.update(percentiles(seconds));
  if (options.demand > 0) report.update(wait_at(options.demand, shards, options.loader));
  return report;
}

}  // namespace bert
