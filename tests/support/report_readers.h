// Readers of reports in other processes: TensorBoard, and MLPerf's compliance checker.
#pragma once

#include <array>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "tests/places.h"
#include "tests/testing.h"

namespace bert::testing {

/// The Python that the environment variable `name` names; "" if there is none.
inline std::string python_of(const char* name) {
  const char* python = std::getenv(name);
  return python == nullptr ? "" : python;
}

/// The standard output of a command. Throws std::runtime_error, with the output, if the command fails.
inline std::string output_of(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("no pipe to " + command);
  std::string output;
  std::array<char, 4096> part{};
  for (size_t got = 0; (got = fread(part.data(), 1, part.size(), pipe)) > 0;) output.append(part.data(), got);
  if (pclose(pipe) != 0) throw std::runtime_error("fails: " + command + "\n" + output);
  return output;
}

/// The scalars, histograms, texts and hyper-parameters that TensorBoard finds in the directory.
inline nlohmann::json read_with_tensorboard(const std::string& directory) {
  return nlohmann::json::parse(output_of("'" + python_of("BERT_TENSORBOARD_PYTHON") +
                                         "' '" BERT_SOURCE_DIR "/tests/report/tensorboard_reader.py' '" + directory +
                                         "' 2>/dev/null"));
}

/// Runs mlperf_logging's compliance checker on the file, with the rules of training 5.0.0, the last with BERT. Throws
/// std::runtime_error with its messages if it is not content.
inline void check_with_mlperf(const std::string& file) {
  const TemporaryDirectory directory;
  output_of("'" + python_of("BERT_MLPERF_PYTHON") +
            "' -m mlperf_logging.compliance_checker --werror --ruleset 5.0.0 --log_output '" + directory.path("log") +
            "' '" + file + "' 2>&1");
}

}  // namespace bert::testing
