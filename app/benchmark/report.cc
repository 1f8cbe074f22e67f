#include "app/benchmark/report.h"

#include <algorithm>
#include <array>
#include <fstream>

#include "app/parse/bounded_json.h"
#include "app/system/errors.h"
#include "data/io/error.h"

namespace bert {
namespace {

using Json = nlohmann::json;

/// The fields that must be equal for two times to be comparable.
constexpr std::array kIdentity = {"benchmark",    "machine",   "device",       "threads", "precision",         "model",
                                  "optimizer",    "objective", "batch",        "length",  "lengths",           "tokens",
                                  "larger_batch", "data",      "global_batch", "masking", "micro_batch_tokens"};

/// The text after "key :" in the first line of a file that begins with the key.
std::string field_of(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

std::string text_of(const Json& row, const char* key) {
  return row.contains(key) && row[key].is_string() ? row[key].get<std::string>() : "";
}

std::vector<std::pair<std::string, double>> times_of(const Json& report) {
  std::vector<std::pair<std::string, double>> times;
  const auto add = [&](const Json& row, const std::string& name) {
    if (row.is_object() && row.contains("ms_median") && row["ms_median"].is_number())
      times.emplace_back(name, row["ms_median"]);
  };
  add(report, text_of(report, "benchmark"));
  for (const char* list : {"kernels", "cases"}) {
    if (!report.contains(list)) continue;
    for (const Json& row : report[list]) add(row, text_of(row, "name") + " " + text_of(row, "pass"));
  }
  return times;
}

}  // namespace

Quantiles::Quantiles(std::vector<double> samples) : sorted_(std::move(samples)) {
  std::sort(sorted_.begin(), sorted_.end());
}

double Quantiles::at(double share) const {
  return sorted_[static_cast<size_t>(share * static_cast<double>(sorted_.size() - 1))];
}

nlohmann::ordered_json percentiles(const std::vector<double>& seconds) {
  const Quantiles quantiles(seconds);
  return {{"ms_median", 1e3 * quantiles.at(0.5)},
          {"ms_p10", 1e3 * quantiles.at(0.1)},
          {"ms_p90", 1e3 * quantiles.at(0.9)},
          {"ms_p99", 1e3 * quantiles.at(0.99)}};
}

std::string processor_name() {
  const std::string name = field_of("/proc/cpuinfo", "model name");
  return name.empty() ? "unknown" : name;
}

int64_t peak_resident_bytes() {
  constexpr int64_t kKilobyte = 1024;
  return kKilobyte * std::stoll("0" + field_of("/proc/self/status", "VmHWM"));
}

void check_comparable(const Json& before, const Json& now) {
  std::string differences;
  for (const char* key : kIdentity) {
    const Json old_value = before.value(key, Json()), new_value = now.value(key, Json());
    if (old_value == new_value) continue;
    differences += std::string("\n  ") + key + ": was " + old_value.dump() + ", now " + new_value.dump();
  }
  if (!differences.empty()) throw UsageError("--compare: the reports are not of the same thing:" + differences);
}

std::vector<ComparedFigure> compare_reports(const Json& before, const Json& now) {
  check_comparable(before, now);
  std::vector<ComparedFigure> figures;
  const auto old_times = times_of(before);
  for (const auto& [name, ms] : times_of(now)) {
    const auto same = [&name = name](const auto& old) { return old.first == name; };
    const auto old = std::find_if(old_times.begin(), old_times.end(), same);
    if (old != old_times.end()) figures.push_back({.name = name, .old_ms = old->second, .new_ms = ms});
  }
  if (figures.empty()) throw UsageError("--compare: the reports have no time in common");
  return figures;
}

}  // namespace bert
