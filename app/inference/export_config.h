// The config.json inside a TorchScript export: the model's sizes and the tokenizer's settings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/config.h"
#include "model/config.h"

namespace bert {

/// Names of the files inside an export, beside kTokenizerFile of a SentencePiece model (app/checkpoint/files.h).
inline constexpr const char* kExportConfigFile = "config.json";
inline constexpr const char* kExportVocabularyFile = "vocab.txt";  // a token a line

struct ExportConfig {
  BertConfig model = {};
  TokenizerConfig tokenizer = {};
  Objective objective = Objective::kNsp;  // older exports have no other
  std::string architecture = {};          // class whose state dict the weights are; empty: that of the objective
  std::vector<std::string> labels = {};   // of a classifier's outputs, in their order; empty: no classifier
  std::string task = {};                  // of a fine-tuned model, by its name in `bert finetune`; "": pre-training
  int64_t max_length = 0;                 // tokens of an input at most; 0: max_position_embeddings
  std::optional<TaskDataConfig> task_data = {};  // of a run of fine-tuning, but for its list of labels
  std::string vocabulary_hash = {};              // Vocabulary::hash() of the tokens inside; empty: an older export
};

/// One JSON object with Hugging Face's keys: the fields of the model, model_type, architectures (the class whose state
/// dict the weights are), the settings of the tokenizer; objective, vocabulary_hash, model_max_length; task and task_data
/// of a fine-tuned model, and id2label with label2id where there are labels. `match_special_tokens` is left out: every predictor matches [MASK].
std::string write_export_config(const ExportConfig& config);

/// Reads what write_export_config() wrote. A missing key keeps its default, an unknown key is ignored. Throws DataError,
/// which names `file` and the key, for a value of another type, a setting in task_data out of its range, and for labels whose
/// ids are not 0, 1, 2 and so on.
ExportConfig read_export_config(const std::string& text, const std::string& file);

}  // namespace bert
