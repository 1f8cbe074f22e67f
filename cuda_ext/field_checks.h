// Finds the problems of an options struct through its list of fields (visit_fields) and its relations between fields
// (check_relations).
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cuda_ext/names.h"

namespace bert {

/// Visits the fields of a configuration. A number must lie in its range (NaN lies in none).
class FieldCheck {
 public:
  FieldCheck(std::string prefix, std::vector<std::string>& problems)
      : prefix_(std::move(prefix)), problems_(problems) {}

  template <class T>
  void operator()(const char* /*name*/, const T& /*value*/, const char* /*help*/) {}

  template <class T, class Bound>
  void operator()(const char* name, const T& value, const char* help, Bound low, Bound high) {
    if (value >= static_cast<T>(low) && value <= static_cast<T>(high)) return;
    problems_.push_back(fmt::format("{}{} is {}, expected {} to {} ({})", prefix_, name, value, low, high, help));
  }

 private:
  std::string prefix_;
  std::vector<std::string>& problems_;
};

/// Every problem of `config`, fields first, then relations: "optimizer.lr is -1, expected 0 to 10 (peak learning
/// rate)" for the prefix "optimizer.".
template <class Config>
std::vector<std::string> problems_of(const std::string& prefix, const Config& config) {
  std::vector<std::string> problems;
  Config::visit_fields(config, FieldCheck(prefix, problems));
  Config::check_relations(
      config, [&](const char* name, const auto& value, const char* want, const char* other, const auto& other_value) {
        problems.push_back(fmt::format("{}{} is {}, expected {} {} {}", prefix, name, name_or_value(value), want, other,
                                       name_or_value(other_value)));
      });
  return problems;
}

}  // namespace bert
