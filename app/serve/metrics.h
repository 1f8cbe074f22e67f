// The figures of `bert serve` for Prometheus.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "app/http/prometheus_text.h"

namespace bert {

/// Figures of a gauge or counter at the time of a scrape.
struct MetricValue {
  std::string name, help, type;  // type: "gauge" or "counter"
  int64_t value = 0;
};

/// The figures of a server. Any number of threads may call it.
class ServerMetrics {
 public:
  void request(const std::string& path, int status, double seconds);
  void batch(int64_t texts, int64_t tokens, double seconds);
  /// All figures, and `values`.
  [[nodiscard]] std::string text(const std::vector<MetricValue>& values) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, int64_t> requests_;  // by path and status
  int64_t texts_ = 0, tokens_ = 0;
  Histogram seconds_{{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}};
  Histogram batch_seconds_{{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}};
  Histogram batch_texts_{{1, 2, 4, 8, 16, 32, 64, 128, 256, 512}};
  Histogram batch_tokens_{{16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}};
};

}  // namespace bert
