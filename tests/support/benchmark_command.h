// Calls of `bert benchmark`.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/places.h"
#include "tests/testing.h"

namespace bert::testing {

/// What a call of the program printed.
struct BenchmarkOutput {
  int status;
  std::string text;
  [[nodiscard]] nlohmann::json report() const {
    return nlohmann::json::parse(text.substr(text.rfind('\n', text.find_last_not_of('\n')) + 1));
  }
};

/// `launcher`: text before the program on the command line.
inline BenchmarkOutput run_benchmark(const std::string& arguments, const std::string& launcher = "") {
  FILE* pipe = popen((launcher + " " + BERT_EXECUTABLE + " benchmark " + arguments + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  BenchmarkOutput output;
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;) output.text += static_cast<char>(c);
  output.status = WEXITSTATUS(pclose(pipe));
  return output;
}

}  // namespace bert::testing
