#include "data/tasks/squad_features.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "data/io/error.h"
#include "data/tasks/text_windows.h"
#include "data/text/unicode.h"

namespace bert {
namespace {

/// The number of the word in which the byte `at` lies, or behind which it is white space; -1 before the first word.
int64_t number_of_word_at(const std::vector<SquadWord>& words, int64_t at) {
  const auto behind = std::upper_bound(words.begin(), words.end(), at,
                                       [](int64_t byte, const SquadWord& word) { return byte < word.begin; });
  return behind - words.begin() - 1;
}

/// Words `first` to `last`, joined by spaces.
std::string words_text(const SquadParagraph& paragraph, int64_t first, int64_t last) {
  std::string text;
  for (int64_t i = first; i <= last; ++i) {
    const SquadWord& word = paragraph.words[static_cast<size_t>(i)];
    if (i > first) text += ' ';
    text.append(paragraph.context, static_cast<size_t>(word.begin), static_cast<size_t>(word.end - word.begin));
  }
  return text;
}

}  // namespace

/// The answer's tokens in the context: first and last. A question without an answer has none.
struct SquadFeatureMaker::AnswerTokens {
  int64_t first = -1, last = -1;
  bool exists = false;
};

SquadFeatureMaker::SquadFeatureMaker(const SquadDataset& data, const Tokenizer& tokenizer, const TaskDataConfig& config)
    : data_(data), tokenizer_(tokenizer), config_(config) {}

void SquadFeatureMaker::tokenize(int32_t paragraph) {
  if (paragraph == paragraph_) return;
  paragraph_ = paragraph;
  tokens_.clear();
  words_.clear();
  firsts_.clear();
  const SquadParagraph& source = data_.paragraphs[static_cast<size_t>(paragraph)];
  for (const SquadWord& word : source.words) {
    const auto number = static_cast<int32_t>(firsts_.size());
    firsts_.push_back(static_cast<int32_t>(tokens_.size()));
    tokenizer_.encode(std::string_view(source.context)
                          .substr(static_cast<size_t>(word.begin), static_cast<size_t>(word.end - word.begin)),
                      tokens_);
    words_.resize(tokens_.size(), number);
  }
}

/// Finds the answer's words, and in these its own tokens, if they are there. Source: read_squad_examples and
/// _improve_answer_span of run_squad.py. Returns false if the words do not contain the answer.
bool SquadFeatureMaker::find_answer(const SquadQuestion& question, AnswerTokens& tokens) const {
  if (question.answers.empty()) return true;
  const SquadParagraph& paragraph = data_.paragraphs[static_cast<size_t>(question.paragraph)];
  const SquadAnswer& answer = question.answers.front();
  size_t last_character = answer.text.size() - 1;
  while ((static_cast<unsigned char>(answer.text[last_character]) & 0xC0) == 0x80) --last_character;
  const int64_t first = number_of_word_at(paragraph.words, answer.start);
  const int64_t last = number_of_word_at(paragraph.words, answer.start + static_cast<int64_t>(last_character));
  if (first < 0 || words_text(paragraph, first, last).find(collapse_space(answer.text)) == std::string::npos)
    return false;

  tokens.first = firsts_[static_cast<size_t>(first)];
  tokens.last = (last + 1 < static_cast<int64_t>(firsts_.size()) ? firsts_[static_cast<size_t>(last) + 1]
                                                                 : static_cast<int64_t>(tokens_.size())) -
                1;
  tokens.exists = tokens.last >= tokens.first;  // words of characters that the tokenizer drops have no tokens
  const std::vector<int32_t> wanted = tokenizer_.encode(answer.text);
  const auto begin = tokens_.begin() + tokens.first, end = tokens_.begin() + tokens.last + 1;
  if (!tokens.exists || wanted.empty()) return true;
  const auto found = std::search(begin, end, wanted.begin(), wanted.end());
  if (found == end) return true;
  tokens.first = found - tokens_.begin();
  tokens.last = tokens.first + static_cast<int64_t>(wanted.size()) - 1;
  return true;
}

bool SquadFeatureMaker::append(int32_t index, bool for_training, std::vector<TaskSequence>& sequences,
                               std::vector<SquadWindow>& windows) {
  const SquadQuestion& question = data_.questions[static_cast<size_t>(index)];
  const Vocabulary& vocabulary = tokenizer_.vocabulary();
  tokenize(question.paragraph);
  AnswerTokens answer;
  if (for_training && !find_answer(question, answer)) return false;

  std::vector<int32_t> query = tokenizer_.encode(question.text);
  if (static_cast<int64_t>(query.size()) > config_.max_query_length) {
    query.resize(static_cast<size_t>(config_.max_query_length));
    ++cut_;
  }
  const auto first_token = static_cast<int64_t>(query.size()) + 2;  // behind [CLS] question [SEP]
  const int64_t room = config_.max_seq_length - first_token - 1;
  if (room < 1) {
    throw DataError(
        fmt::format("question {}: max_seq_length {} leaves no room for the context beside a question of {} "
                    "tokens; lower max_query_length",
                    question.id, config_.max_seq_length, query.size()));
  }
  const std::vector<TextWindow> spans =
      text_windows(static_cast<int64_t>(tokens_.size()), room, config_.doc_stride, config_.most_window_tokens);
  for (size_t s = 0; s < spans.size(); ++s) {
    const auto [start, length] = spans[s];
    TaskSequence sequence;
    sequence.example = index;
    std::vector<int32_t>& ids = sequence.input_ids;
    ids.reserve(static_cast<size_t>(first_token + length + 1));
    ids.push_back(vocabulary.cls_id());
    ids.insert(ids.end(), query.begin(), query.end());
    ids.push_back(vocabulary.sep_id());
    ids.insert(ids.end(), tokens_.begin() + start, tokens_.begin() + start + length);
    ids.push_back(vocabulary.sep_id());
    sequence.token_type_ids.assign(static_cast<size_t>(first_token), 0);
    sequence.token_type_ids.resize(ids.size(), 1);
    if (answer.exists && answer.first >= start && answer.last < start + length) {
      sequence.start_position = static_cast<int32_t>(answer.first - start + first_token);
      sequence.end_position = static_cast<int32_t>(answer.last - start + first_token);
    }
    sequences.push_back(std::move(sequence));
    if (for_training) continue;
    SquadWindow window{.first_token = static_cast<int32_t>(first_token),
                       .words = {words_.begin() + start, words_.begin() + start + length},
                       .max_context = {}};
    for (int64_t i = start; i < start + length; ++i) window.max_context.push_back(is_max_context(spans, s, i));
    windows.push_back(std::move(window));
  }
  return true;
}

}  // namespace bert
