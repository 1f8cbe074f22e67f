// The small files beside model.safetensors with which transformers opens a directory.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "app/config/model_description.h"
#include "data/tasks/task_definition.h"

namespace bert {

/// The keys of tokenizer_config.json and special_tokens_map.json, with the tokens of BERT.
inline constexpr std::pair<const char*, const char*> kSpecialTokens[] = {{"pad_token", "[PAD]"},
                                                                         {"unk_token", "[UNK]"},
                                                                         {"cls_token", "[CLS]"},
                                                                         {"sep_token", "[SEP]"},
                                                                         {"mask_token", "[MASK]"}};

/// In place of a class of transformers, of a model with ModelDescription::start_markers. AutoModel opens its encoder.
inline constexpr const char* kMarkerArchitecture = "BertForEntityMarkers";

/// The class of transformers whose head a kind of task has.
const char* architecture_of(TaskKind kind);
/// The class of transformers whose state dict the weights of a model are.
const char* architecture_of(const ModelDescription& model);

/// Name to content: config.json and, for a WordPiece vocabulary, vocab.txt, tokenizer_config.json,
/// special_tokens_map.json and tokenizer.json. The last is left out if a token occurs twice, which its format cannot
/// express. `dtype` is that of the weights. Transformers has no BERT tokenizer of SentencePiece models, so these get
/// config.json alone. Equal descriptions give equal bytes.
std::map<std::string, std::string> hugging_face_files(const ModelDescription& model, const std::string& dtype = "F32");

}  // namespace bert
