// `bert predict` and its lines of JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "app/verbs/verbs.h"
#include "tests/support/command_testing.h"

namespace bert::testing {

inline CommandResult predict(const std::string& checkpoint, std::vector<std::string> arguments,
                             const std::string& input = "") {
  arguments.insert(arguments.begin(), {"predict", "--checkpoint", checkpoint});
  return run_command(predict_command, arguments, input);
}

template <class Json = nlohmann::ordered_json>
std::vector<Json> lines_of(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
  return lines;
}

}  // namespace bert::testing
