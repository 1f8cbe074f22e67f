#include "app/tasks/answer_text.h"

#include <string_view>

#include "data/text/unicode.h"
#include "data/tokenizer/basic_tokenizer.h"

namespace bert {
namespace {

/// The words of the basic tokenizer, joined by spaces.
std::string basic_words(const std::string& text, TokenizerConfig config) {
  config.max_input_chars_per_word = static_cast<int64_t>(text.size()) * static_cast<int64_t>(Folded::kMaxBytes) + 1;
  std::string result;
  BasicTokenizer(config).for_each_word<false>(text, [&](const Word& word) {
    if (!result.empty()) result += ' ';
    result += word.text;
  });
  return result;
}

/// For each character of `text` other than a space, its first byte.
std::vector<size_t> characters_without_spaces(std::string_view text) {
  std::vector<size_t> starts;
  for (size_t at = 0; at < text.size(); at += static_cast<size_t>(decode_utf8(text.substr(at)).bytes)) {
    if (text[at] != ' ') starts.push_back(at);
  }
  return starts;
}

}  // namespace

std::string align_answer(const std::string& tokens_text, const std::string& original, const TokenizerConfig& config) {
  const std::string words = basic_words(original, config);
  const size_t begin = words.find(tokens_text);
  if (begin == std::string::npos || tokens_text.empty()) return original;
  const std::vector<size_t> from = characters_without_spaces(words), to = characters_without_spaces(original);
  if (from.size() != to.size()) return original;
  // The two have the same characters without spaces, so that the number of a character is its place in both.
  const size_t end = begin + tokens_text.size();
  size_t first = from.size(), last = from.size();
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] == begin) first = i;
    if (from[i] < end) last = i;
  }
  if (first == from.size() || last < first) return original;
  const auto bytes = static_cast<size_t>(decode_utf8(std::string_view(original).substr(to[last])).bytes);
  return original.substr(to[first], to[last] + bytes - to[first]);
}

std::string answer_text(const std::vector<std::string>& tokens, const std::string& original,
                        const Tokenizer& tokenizer) {
  const auto* word_piece = dynamic_cast<const WordPieceTokenizer*>(&tokenizer);
  if (word_piece == nullptr) return original;
  std::string text;
  for (std::string_view token : tokens) {
    if (token.starts_with("##")) {
      token.remove_prefix(2);
    } else if (!text.empty()) {
      text += ' ';
    }
    text += token;
  }
  return align_answer(collapse_space(text), original, word_piece->config());
}

}  // namespace bert
