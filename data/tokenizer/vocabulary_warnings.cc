#include "data/tokenizer/vocabulary_warnings.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <string_view>

#include "data/text/unicode.h"

namespace bert {
namespace {

struct Letters {
  bool capital = false, small = false;
  bool with_vowel_signs = false;  // of a script whose vowels are combining marks
};

/// Scripts of South and South-East Asia: Devanagari to Malayalam and Sinhala, Thai, Lao, Tibetan, Burmese, Khmer.
bool has_vowel_signs(char32_t value) {
  return (value >= 0x0900 && value <= 0x109F) || (value >= 0x1780 && value <= 0x17FF);
}

/// The kinds of letters of `token`.
Letters letters_of(std::string_view token) {
  Letters found;
  while (!token.empty()) {
    const DecodedUtf8 character = decode_utf8(token);
    token.remove_prefix(static_cast<size_t>(character.bytes));
    const auto value = static_cast<utf8proc_int32_t>(character.value);
    found.capital = found.capital || utf8proc_tolower(value) != value;
    found.small = found.small || utf8proc_toupper(value) != value;
    found.with_vowel_signs = found.with_vowel_signs || has_vowel_signs(character.value);
  }
  return found;
}

/// True for [PAD], [unused1] and the like, which no text becomes.
bool is_reserved(std::string_view token) { return token.starts_with('[') && token.ends_with(']') && token.size() > 2; }

}  // namespace

std::vector<std::string> vocabulary_warnings(const Tokenizer& tokenizer, const std::string& name) {
  const auto* const word_piece = dynamic_cast<const WordPieceTokenizer*>(&tokenizer);
  if (word_piece == nullptr) return {};
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  int64_t repeated = 0, capital = 0, small = 0, with_vowel_signs = 0, first_repeated = 0, first_capital = 0;
  for (int64_t id = 0; id < vocabulary.size(); ++id) {
    const std::string& token = vocabulary.token(id);
    if (vocabulary.find(token) != id && repeated++ == 0) first_repeated = id;
    if (is_reserved(token)) continue;
    const Letters letters = letters_of(token);
    if (letters.capital && capital++ == 0) first_capital = id;
    small += static_cast<int64_t>(letters.small);
    with_vowel_signs += static_cast<int64_t>(letters.with_vowel_signs);
  }
  std::vector<std::string> warnings;
  if (repeated > 0) {
    const std::string& token = vocabulary.token(first_repeated);
    warnings.push_back(fmt::format(
        "{}: {} tokens occur again further down, the first is \"{}\" of lines {} and {}; the last place of a "
        "token is its id, as in Google's code",
        name, repeated, token, first_repeated + 1, vocabulary.find(token) + 1));
  }
  if (word_piece->config().do_lower_case && capital * 100 > vocabulary.size()) {
    warnings.push_back(
        fmt::format("{}: {} tokens have capital letters, the first is \"{}\" of line {}; text in lower case never "
                    "becomes these. A cased vocabulary needs do_lower_case false (--cased)",
                    name, capital, vocabulary.token(first_capital), first_capital + 1));
  }
  if (!word_piece->config().do_lower_case && capital == 0 && small > 0) {
    warnings.push_back(
        fmt::format("{}: no token has a capital letter, so that words with one become [UNK]. An uncased vocabulary "
                    "needs do_lower_case true (without --cased)",
                    name));
  }
  constexpr int64_t kShare = 20;  // one token of so many says that the texts are of such a script
  if (word_piece->config().strips_accents() && with_vowel_signs * kShare > vocabulary.size()) {
    warnings.push_back(fmt::format(
        "{}: {} tokens are of Devanagari, Tamil, Thai or a like script, whose vowel signs go with the accents: "
        "words become others. strip_accents false (--strip-accents=false) keeps the signs; a vocabulary "
        "that was learned without them has none",
        name, with_vowel_signs));
  }
  return warnings;
}

}  // namespace bert
