// The text format of Prometheus, version 0.0.4. (prometheus-cpp's Debian package brings a web server of its own along.)
#pragma once

#include <cstdint>
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

}  // namespace bert
