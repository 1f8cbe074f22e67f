// Declarations that the files of this room share.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "app/config/fields.h"
#include "app/parse/json_tree.h"
#include "app/system/errors.h"

namespace bert {

struct ConfigReport::Impl {
  std::vector<ConfigProblem> problems;
  std::vector<std::tuple<std::string, int64_t, int64_t>> order;  // sort keys of the problems: source, line, column
  std::set<std::string> bad;                                     // pointers with a problem
  std::map<std::string, JsonPlace> places;                       // place of the value, by pointer
  bool incomplete = false;  // JsonProblems::incomplete: checks across fields are left out
  JsonPlace root;           // place of a problem whose fields no source has set

  /// Adds problems of the JSON text, found before any field was set.
  void take(JsonProblems found);
  void add(const JsonPlace& place, const std::string& pointer, const std::string& message);
};

/// `path` without "." and ".." parts. A ".." behind a symbolic link to a directory means the parent of the directory
/// that the link names, as in the kernel. Other links stay, as does ".." behind a broken link.
std::filesystem::path without_dots(const std::filesystem::path& path);

/// The value of a field as JSON.
std::string field_value(const ConfigField& field);

/// Sets the fields from `tree`.
void bind_config(const ConfigFields& fields, const JsonNode& tree, ConfigReport& report);

}  // namespace bert
