#include "app/interop/neighbours.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "app/interop/hugging_face_config.h"
#include "app/interop/hugging_face_tokenizer.h"
#include "data/io/error.h"

namespace bert {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGoogleConfig = "bert_config.json";
constexpr const char* kTransformersConfig = "config.json";

/// The configuration to read.
std::string config_file(const std::string& path, const std::string& directory, const std::string& config) {
  std::error_code unseen;
  if (!config.empty()) return config;
  for (const char* name : {kGoogleConfig, kTransformersConfig}) {
    std::string file = (fs::path(directory) / name).string();
    if (fs::exists(file, unseen)) return file;
  }
  throw InputMissing(
      fmt::format("{}: there is neither {} nor {} beside it, and weights do not tell their heads and "
                  "activation. Put one there, or name it with --config.",
                  path, kGoogleConfig, kTransformersConfig));
}

/// True for a token like "The" or "##S"; the special tokens are upper case in every vocabulary.
bool has_upper_case(const std::string& token) {
  return !token.starts_with('[') &&
         std::any_of(token.begin(), token.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
}

}  // namespace

void read_neighbours(ForeignCheckpoint& checkpoint, const std::string& directory, const std::string& config) {
  const std::string file = config_file(checkpoint.path, directory, config);
  checkpoint.model = read_hugging_face_config(file);
  read_hugging_face_tokenizer(directory, checkpoint);
  std::vector<std::string>& notes = checkpoint.report.notes;
  if (fs::path(file).filename() == kTransformersConfig) return;
  if (checkpoint.model.config.hidden_act == Activation::kGelu) {
    checkpoint.model.config.hidden_act = Activation::kGeluNew;
    notes.push_back(
        fmt::format("hidden_act: gelu of {} is the tanh form here, gelu_new", fs::path(file).filename().string()));
  }
  if (checkpoint.states_case) return;
  checkpoint.model.tokenizer.max_input_chars_per_word = TokenizerConfig().max_input_chars_per_word;
  if (std::any_of(checkpoint.model.vocabulary.begin(), checkpoint.model.vocabulary.end(), has_upper_case)) {
    checkpoint.model.tokenizer.do_lower_case = false;
    notes.emplace_back("do_lower_case: false, because the vocabulary has upper case");
  }
}

}  // namespace bert
