// ONNX Runtime in another process.
#pragma once

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/places.h"
#include "tests/support/onnx_evaluator.h"
#include "tests/testing.h"

namespace bert::testing {

/// The Python that has onnx and onnxruntime; "" if there is none.
inline std::string onnx_python() {
  const char* python = std::getenv("BERT_ONNX_PYTHON");
  return python == nullptr ? "" : python;
}

/// Checks the file `model` with onnx.checker, and runs it on each of `calls`, objects of arrays of integers.
inline std::vector<std::map<std::string, Array>> run_onnx_runtime(const std::string& model,
                                                                  const nlohmann::json& calls) {
  const TemporaryDirectory directory;
  const std::string inputs = directory.path("inputs.json"), outputs = directory.path("outputs.json");
  std::ofstream(inputs) << calls;
  const std::string command = "'" + onnx_python() + "' '" BERT_SOURCE_DIR "/tests/export/onnx_runtime.py' '" + model +
                              "' '" + inputs + "' '" + outputs + "'";
  if (std::system(command.c_str()) != 0) throw std::runtime_error("fails: " + command);
  std::vector<std::map<std::string, Array>> results;
  for (const nlohmann::json& call : nlohmann::json::parse(std::ifstream(outputs))) {
    results.emplace_back();
    for (const auto& [name, output] : call.items()) {
      results.back()[name] = {output.at("shape").get<std::vector<int64_t>>(),
                              output.at("values").get<std::vector<double>>()};
    }
  }
  return results;
}

}  // namespace bert::testing
