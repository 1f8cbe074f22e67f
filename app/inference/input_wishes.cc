#include "app/inference/input_wishes.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/io/error.h"

namespace bert {

void set_windows(TaskKind kind, const std::string& question, const AnswerOptions& options, const Tokenizer& tokenizer,
                 TaskDataConfig& config) {
  config.max_seq_length = std::min(config.max_seq_length, options.max_seq_len.value_or(config.max_seq_length));
  config.max_query_length = options.max_question_len.value_or(config.max_query_length);
  if (!options.overlap) return;
  int64_t room = config.max_seq_length - 2;
  if (kind == TaskKind::kQuestionAnswering) {
    room -= 1 + std::min(std::ssize(tokenizer.encode(question)), config.max_query_length);
  } else {
    config.long_texts = LongTexts::kWindows;
  }
  if (*options.overlap >= room)
    throw DataError(fmt::format("windows of {} tokens cannot share {} of them", room, *options.overlap));
  config.doc_stride = room - *options.overlap;
}

std::string first_tokens(const Tokenizer& tokenizer, std::string text, int64_t most) {
  const Encoding encoding = tokenizer.encode_with_offsets(text);
  if (std::ssize(encoding.ids) > most)
    text.resize(static_cast<size_t>(encoding.spans[static_cast<size_t>(most) - 1].end));
  return text;
}

bool end_pair(TaskSequence& sequence, int32_t sep, int64_t most) {
  if (sequence.token_type_ids.back() == 1) return false;
  const bool full = std::ssize(sequence.input_ids) == most;
  if (full) {
    sequence.input_ids.erase(sequence.input_ids.end() - 2);
    sequence.token_type_ids.pop_back();
  }
  sequence.input_ids.push_back(sep);
  sequence.token_type_ids.push_back(1);
  return full;
}

}  // namespace bert
