#include "app/http/prometheus_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace bert {

std::string metric_header(const std::string& name, const std::string& help, const std::string& type) {
  return fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

std::string metric_label(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return '"' + escaped + '"';
}

void Histogram::observe(double value) {
  ++counts_[static_cast<size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin())];
  sum_ += value;
}

std::string Histogram::text(const std::string& name, const std::string& help) const {
  std::string lines = metric_header(name, help, "histogram");
  int64_t count = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    count += counts_[i];
    const std::string bound = i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf";
    lines += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, bound, count);
  }
  return lines + fmt::format("{}_sum {}\n{}_count {}\n", name, sum_, name, count);
}

}  // namespace bert
