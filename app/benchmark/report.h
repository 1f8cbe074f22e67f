// The reports of the benchmarks, and the comparison of a report with an earlier one. A report is one JSON object with
// its circumstances (kIdentity) and times under "ms_median", at the top or in the rows of "kernels" or "cases".
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bert {

/// Quantiles of times: the nearest sample below.
class Quantiles {
 public:
  explicit Quantiles(std::vector<double> samples);  // not empty
  [[nodiscard]] double at(double share) const;

 private:
  std::vector<double> sorted_;
};

/// ms_median, ms_p10, ms_p90 and ms_p99 of times in seconds; at least one time.
nlohmann::ordered_json percentiles(const std::vector<double>& seconds);

/// The name of the processor, or "unknown" if the system does not tell it.
std::string processor_name();

/// The most bytes of memory that this process has had, as the kernel counts.
int64_t peak_resident_bytes();

/// A time that both reports have. ratio = old / new: above 1 the new one is faster.
struct ComparedFigure {
  std::string name;
  double old_ms = 0, new_ms = 0;
  [[nodiscard]] double ratio() const { return old_ms / new_ms; }
};

/// Throws UsageError that names the difference if two reports differ in verb, machine, model or shape. `now` may still
/// lack its times.
void check_comparable(const nlohmann::json& before, const nlohmann::json& now);

/// Every time that both reports have. Throws UsageError if there is none, or if the reports cannot be compared.
std::vector<ComparedFigure> compare_reports(const nlohmann::json& before, const nlohmann::json& now);

}  // namespace bert
