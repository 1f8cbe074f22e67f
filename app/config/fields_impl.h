// What the parts of json_config share.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "app/config/fields.h"
#include "app/parse/json_tree.h"
#include "app/system/errors.h"

namespace bert {

struct ConfigReport::Impl {
  std::vector<ConfigProblem> problems;
  std::vector<std::tuple<std::string, int64_t, int64_t>> order;  // of problems: source, line, column
  std::set<std::string> bad;                                     // pointers with a problem
  std::map<std::string, JsonPlace> places;                       // where a field's value came from
  bool incomplete = false;                                       // as of JsonProblems: no checks across fields
  JsonPlace root;                                                // stands for what no source has set

  /// Problems that were found before any field was set.
  void take(JsonProblems found);
  void add(const JsonPlace& place, const std::string& pointer, const std::string& message);
};

/// `path` without "." and without "..", to what the system would find there: what is above the directory that a symbolic
/// link leads to, not above the link. Other links stay, as does ".." behind a link that leads nowhere.
std::filesystem::path without_dots(const std::filesystem::path& path);

/// Sets the fields from `tree`.
void bind_config(const ConfigFields& fields, const JsonNode& tree, ConfigReport& report);

}  // namespace bert
