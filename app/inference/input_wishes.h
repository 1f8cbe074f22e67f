// The wishes of a caller about the tokens of an input of a fine-tuned model.
#pragma once

#include <cstdint>
#include <string>

#include "app/inference/answer_options.h"
#include "data/config.h"
#include "data/tasks/task_definition.h"
#include "data/tasks/task_sequence.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

/// Sets what `options` say about the windows of a context with `question`, or of a text of token classification. Throws
/// DataError for an overlap that leaves no room.
void set_windows(TaskKind kind, const std::string& question, const AnswerOptions& options, const Tokenizer& tokenizer,
                 TaskDataConfig& config);

/// The text up to the end of its first `most` tokens.
std::string first_tokens(const Tokenizer& tokenizer, std::string text, int64_t most);

/// Ends a pair whose second text has no tokens with that text's [SEP], as transformers' tokenizers do. A sequence of
/// `most` tokens loses its last one for it: then the result is true.
bool end_pair(TaskSequence& sequence, int32_t sep, int64_t most);

}  // namespace bert
