#include "app/benchmark/data.h"

#include <chrono>
#include <numeric>
#include <vector>

#include "app/benchmark/report.h"

namespace bert {

nlohmann::ordered_json benchmark_data(const std::shared_ptr<const PretrainingShards>& shards,
                                      const DataBenchmarkOptions& options) {
  PretrainingDataLoader loader(shards, options.loader);
  for (int64_t i = 0; i < options.warmup; ++i) loader.next();
  std::vector<double> seconds;
  int64_t sequences = 0, tokens = 0, bytes = 0;
  for (int64_t i = 0; i < options.steps; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const PackedBatch batch = loader.next();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    tokens += batch.num_tokens();
    for (const int64_t sequence : sequence_numbers(batch)) {
      ++sequences;
      bytes += shards->bytes_of_row(loader.example_of_sequence(sequence));
    }
  }
  const double total = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  nlohmann::ordered_json report = {{"sequences_per_second", static_cast<double>(sequences) / total},
                                   {"tokens_per_second", static_cast<double>(tokens) / total},
                                   {"megabytes_per_second", 1e-6 * static_cast<double>(bytes) / total}};
  report.update(percentiles(seconds));
  return report;
}

}  // namespace bert
