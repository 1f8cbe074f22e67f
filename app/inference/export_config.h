// The config.json inside a TorchScript export: the model's sizes and the tokenizer's settings.
#pragma once

#include <string>

#include "app/config/model_description.h"

namespace bert {

/// Names of the files inside an export, beside kTokenizerFile of a SentencePiece model (app/checkpoint/files.h).
inline constexpr const char* kExportConfigFile = "config.json";
inline constexpr const char* kExportVocabularyFile = "vocab.txt";  // a token a line

/// One JSON object with Hugging Face's keys: the fields of the model, model_type, architectures (the class whose state
/// dict the weights are), the settings of the tokenizer; objective, vocabulary_hash, model_max_length; task and
/// task_data of a fine-tuned model, and id2label with label2id where there are labels. `vocabulary_hash` is
/// Vocabulary::hash() of the tokens inside; "" leaves it out. `match_special_tokens` is left out: every predictor
/// matches [MASK].
std::string write_export_config(const ModelDescription& model, const std::string& vocabulary_hash);

struct ExportConfig {
  ModelDescription model;       // without the vocabulary
  std::string vocabulary_hash;  // "": an older export
};

/// Reads what write_export_config() wrote. A missing key keeps its default, an unknown key is ignored. Throws DataError,
/// which names `file` and the key, for a value of another type, a setting in task_data out of its range, and for labels whose
/// ids are not 0, 1, 2 and so on.
ExportConfig read_export_config(const std::string& text, const std::string& file);

}  // namespace bert
