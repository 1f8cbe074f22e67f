// The config.json inside a TorchScript export: the model's sizes and the tokenizer's settings.
#pragma once

#include <string>

#include "data/config.h"
#include "model/config.h"

namespace bert {

/// Names of the files inside an export, beside kTokenizerFile of a SentencePiece model (app/checkpoint/files.h).
inline constexpr const char* kExportConfigFile = "config.json";
inline constexpr const char* kExportVocabularyFile = "vocab.txt";  // a token a line

struct ExportConfig {
  BertConfig model;
  TokenizerConfig tokenizer;
  Objective objective = Objective::kNsp;  // older exports have no other
};

/// One JSON object with Hugging Face's keys: the fields of the model, model_type, architectures (the class whose state
/// dict the weights are), the settings of the tokenizer; and objective. `match_special_tokens` is left out: every
/// predictor matches [MASK].
std::string write_export_config(const ExportConfig& config);

/// Reads what write_export_config() wrote. A missing key keeps its default, an unknown key is ignored. Throws DataError,
/// which names `file` and the key, for a value of another type.
ExportConfig read_export_config(const std::string& text, const std::string& file);

}  // namespace bert
