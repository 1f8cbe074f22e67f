// A trained model and its tokenizer without weights. Checkpoints, exports and the files of other programs are read into
// this description and written from it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/config.h"
#include "model/config.h"

namespace bert {

struct ModelDescription {
  BertConfig config = {};                 // vocab_size is the number of rows of the weights
  Objective objective = Objective::kNsp;  // without pairs, there is no sentence-pair head: Note [Objectives]
  bool masked_token_head = true;          // false: no weight belongs to cls.predictions
  std::string task = {};                  // of a fine-tuned model, by its name in `bert finetune`; "": pre-training
  std::vector<std::string> labels = {};   // of a classifier's outputs, in their order; empty: no classes
  std::optional<TaskDataConfig> task_data = {};  // tokenization and columns of a run of fine-tuning
  std::vector<std::string> vocabulary = {};      // tokens by id; empty: no tokenizer
  TokenizerConfig tokenizer = {};                // of WordPiece
  std::string tokenizer_model = {};  // bytes of a SentencePiece model, whose tokens `vocabulary` has; "" for WordPiece
};

}  // namespace bert
