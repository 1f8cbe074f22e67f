// A trained model and its tokenizer without weights. Checkpoints, exports and the files of other programs are read into
// this description and written from it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/config/sentence_encoder.h"
#include "data/added_token.h"
#include "data/config.h"
#include "model/config.h"

namespace bert {

struct ModelDescription {
  BertConfig config = {};                 // vocab_size is the number of rows of the weights
  Objective objective = Objective::kNsp;  // without pairs, there is no sentence-pair head: Note [Objectives]
  bool masked_token_head = true;          // false: no weight belongs to cls.predictions
  std::string task = {};                  // of a fine-tuned model, by its name in `bert finetune`; "": pre-training
  std::vector<std::string> labels = {};   // of the outputs, in their order; empty: no classes, and one number at most
  bool multi_label = false;               // of a classifier: each label is true or false by itself
  std::vector<double> label_thresholds = {};     // of such labels, in their order, as searched; empty: none were
  bool start_markers = false;                    // of a classifier: EntityMarkers::kStartMarkers
  bool window_attention = false;                 // the weights weigh windows: WindowPooling::kAttention
  std::optional<double> null_threshold = {};     // of SQuAD 2.0, as searched; empty: none was
  bool logit_scores = false;                     // of a reranker: a score is the logit, not its sigmoid
  std::optional<TaskDataConfig> task_data = {};  // tokenization and columns of a run of fine-tuning
  std::optional<SentenceEncoder> sentence = {};  // of a sentence encoder
  std::vector<std::string> vocabulary = {};      // tokens by id; empty: no tokenizer
  std::vector<AddedToken> added_tokens = {};     // tokens of `vocabulary` that texts are searched for
  TokenizerConfig tokenizer = {};                // of WordPiece
  int64_t max_tokens = 0;            // of a text, with [CLS] and [SEP]; 0: as many as the model has positions
  bool cut_at_begin = false;         // a text that is too long loses its begin; else its end
  std::string tokenizer_model = {};  // bytes of a SentencePiece model, whose tokens `vocabulary` has; "" for WordPiece
};

/// The tokens of a text at most: those of the tokenizer, and never more than the model has positions.
inline int64_t most_tokens(const ModelDescription& model) {
  const int64_t positions = model.config.max_position_embeddings;
  return model.max_tokens > 0 ? std::min(model.max_tokens, positions) : positions;
}

}  // namespace bert
