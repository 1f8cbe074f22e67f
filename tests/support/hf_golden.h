// Model directories that transformers saved: tests/golden/hf_model.json.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/testing.h"

namespace bert::testing {

inline nlohmann::json hf_golden() { return nlohmann::json::parse(std::ifstream(golden("hf_model.json"))); }

/// The bytes of a file in the golden: safetensors are hexadecimal digits.
inline std::string hf_bytes(const std::string& name, const std::string& content) {
  if (!name.ends_with(".safetensors")) return content;
  std::string bytes;
  for (size_t i = 0; i < content.size(); i += 2)
    bytes += static_cast<char>(std::stoi(content.substr(i, 2), nullptr, 16));
  return bytes;
}

/// Adds the files of a directory of the golden to `directory`, which is made if it is absent.
inline void write_hf_files(const std::string& name, const std::string& directory) {
  std::filesystem::create_directories(directory);
  const nlohmann::json files = hf_golden()["directories"][name];
  for (const auto& [file, content] : files.items())
    std::ofstream(directory + "/" + file, std::ios::binary) << hf_bytes(file, content.get<std::string>());
}

/// A model directory with weights and tokenizer, as transformers saves both.
inline std::string hf_directory(const TemporaryDirectory& parent, const std::string& name = "pretraining") {
  std::string directory = parent.path(name);
  write_hf_files(name, directory);
  write_hf_files("tokenizer", directory);
  return directory;
}

/// Changes members of a JSON file: `patch` is merged into it (RFC 7386), where null removes a member.
inline void patch_json(const std::string& path, const nlohmann::json& patch) {
  nlohmann::json object = nlohmann::json::parse(std::ifstream(path));
  object.merge_patch(patch);
  std::ofstream(path) << object;
}

}  // namespace bert::testing
