// The small files beside model.safetensors with which transformers opens a directory.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/interop/foreign_checkpoint.h"
#include "data/tasks/task_definition.h"

namespace bert {

/// A model and its tokenizer without weights.
struct ModelDescription {
  BertConfig config;
  Objective objective = Objective::kNsp;
  bool masked_token_head = true;        // false: an encoder without cls
  std::string dtype = "F32";            // of the weights
  std::vector<std::string> vocabulary;  // empty: no tokenizer
  TokenizerConfig tokenizer;
  bool sentencepiece = false;            // `vocabulary` and `tokenizer` are of a SentencePiece model
  std::string task = {};                 // of a fine-tuned model, by its name in `bert finetune`; "": pre-training
  std::vector<std::string> labels = {};  // of its classes, in their order
};

/// The class of transformers whose head a kind of task has.
const char* architecture_of(TaskKind kind);

/// Name to content: config.json and, for a WordPiece vocabulary, vocab.txt, tokenizer_config.json,
/// special_tokens_map.json and tokenizer.json. The last is left out if a token occurs twice, which its format cannot
/// express. Transformers has no BERT tokenizer of SentencePiece models, so these get config.json alone. Equal
/// descriptions give equal bytes.
std::map<std::string, std::string> hugging_face_files(const ModelDescription& model);

}  // namespace bert
