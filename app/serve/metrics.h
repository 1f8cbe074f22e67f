// Counters and histograms in the text format of Prometheus, version 0.0.4. (prometheus-cpp's Debian package brings a web
// server of its own along.)
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace bert {

/// The lines of help and type before the values of the metric `name`. `type`: "gauge", "counter" or "histogram".
std::string metric_header(const std::string& name, const std::string& help, const std::string& type);

/// `text` as the value of a label, between quotation marks.
std::string metric_label(const std::string& text);

/// Numbers of observed values up to each bound, their sum, and their number.
class Histogram {
 public:
  /// `bounds` ascend.
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void observe(double value);
  /// The lines of the metric `name`.
  [[nodiscard]] std::string text(const std::string& name, const std::string& help) const;

 private:
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;  // of values up to each bound and above the one before; the last: above all
  double sum_ = 0;
};

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
