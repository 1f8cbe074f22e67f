// What the benchmarks report, and how a report compares with an earlier one. A report is one JSON object: what was run
// (kIdentity), and times under "ms_median", at the top or in the rows of "kernels" or "stages".
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bert {

/// Quantiles of some times; the nearest sample below.
class Quantiles {
 public:
  explicit Quantiles(std::vector<double> samples);  // not empty
  [[nodiscard]] double at(double share) const;

 private:
  std::vector<double> sorted_;
};

/// ms_median, ms_p10, ms_p90 and ms_p99 of times in seconds, of which there is one at least.
nlohmann::ordered_json percentiles(const std::vector<double>& seconds);

/// "unknown" where the system does not say.
std::string processor_name();

/// A time of both reports. ratio = old / new: above 1 is faster than before.
struct ComparedFigure {
  std::string name;
  double old_ms = 0, new_ms = 0;
  [[nodiscard]] double ratio() const { return old_ms / new_ms; }
};

/// Throws UsageError with what differs when two reports are of another verb, machine, model or shape. `now` need not
/// have its times yet.
void check_comparable(const nlohmann::json& before, const nlohmann::json& now);

/// Every time that both reports have. Throws UsageError when there is none, or they cannot be compared.
std::vector<ComparedFigure> compare_reports(const nlohmann::json& before, const nlohmann::json& now);

/// The report in a file: its last line that is not empty, so that the output of --json can be redirected there. Throws
/// InputMissing or DataError.
nlohmann::json read_report(const std::string& path);

}  // namespace bert
