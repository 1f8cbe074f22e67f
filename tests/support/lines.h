// Lines of texts and files, and JSON lines. A file that is absent has none.
#pragma once

#include <fstream>
#include <istream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace bert::testing {

template <class Lines = std::vector<std::string>>
Lines lines_in(std::istream&& stream) {
  Lines lines;
  for (std::string line; std::getline(stream, line);) lines.insert(lines.end(), line);
  return lines;
}

template <class Json = nlohmann::json>
std::vector<Json> json_lines(std::istream&& stream) {
  std::vector<Json> objects;
  for (const std::string& line : lines_in(std::move(stream))) objects.push_back(Json::parse(line));
  return objects;
}

inline std::vector<nlohmann::json> metrics_of(const std::string& run_directory) {
  return json_lines(std::ifstream(run_directory + "/metrics.jsonl"));
}

}  // namespace bert::testing
