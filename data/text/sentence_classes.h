// Classes of characters and words for split_sentences, from sentence_rules.h, sentence_languages.h and Unicode's
// general categories, and what a document tells about its words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/text/unicode.h"

namespace bert::sentence_classes {

// ---- characters ----

inline bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
inline bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }

/// The character at `at`; at the end of the text, U+0000 with no bytes.
DecodedUtf8 character_at(std::string_view text, size_t at);

/// Position of the first character at or after `at` that is no white space (Unicode's, so no-break spaces too).
size_t skip_space(std::string_view text, size_t at);

/// The last character of `text`; U+0000 if there is none.
char32_t last_character(std::string_view text);

bool is_letter(char32_t value);

/// A letter of a script without capitals, such as Han or Thai.
bool is_caseless(char32_t value);

/// A combining mark.
bool is_mark(char32_t value);
bool is_capital(char32_t value);

/// A small letter that has a capital for the beginning of a sentence. Georgian's small letters have none.
bool is_small(char32_t value);

/// Quotation marks and brackets that close, and marks of emphasis.
bool is_closer(char32_t value);

/// Quotation marks that open in some languages and close in others, as in „Ja.“
bool is_initial_quote(char32_t value);

/// Quotation marks and brackets that open, and marks of emphasis.
bool is_opener(char32_t value);

bool is_dash(char32_t value);
bool is_bullet(char32_t value);

/// A sign that ends a sentence without white space behind it.
bool is_terminator(char32_t value);

/// . ! ? and the signs that are used like these: white space must follow.
bool is_spaced_sign(char32_t value);

/// ; and U+037E, which are the question mark of Greek.
inline bool is_greek_question_mark(char32_t value) { return value == U';' || value == U'\u037e'; }
bool is_greek_letter(char32_t value);

/// True if a character that begins with this byte may be a sign of these kinds.
bool may_begin_sign(char byte);

// ---- words ----

/// Abbreviations, by the text that may follow within the sentence. The lists of sentence_rules.h and of
/// sentence_languages.h have the same names.
enum class Abbreviation { kNone, kNeverEnds, kBeforeDigits, kBeforeNumerals, kMayEnd, kHour, kDate };

/// The kind of `word`, which stands before a full stop, by the lists alone.
Abbreviation abbreviation(std::string_view word);

/// Letters with full stops between them: U.S, J.R.R, Ph.D; with `small_letters` u.s too.
bool is_initialism(std::string_view word, bool small_letters);

/// True for the label of a list item: 12, xii or 2.1.3. `word` must not be empty.
bool is_list_number(std::string_view word);

/// True for a Roman numeral or a label such as B. `rest` is the text behind it, which tells the pronoun I.
bool is_numeral(std::string_view word, std::string_view rest);

/// The word at `at`: letters, digits, apostrophes, and hyphens between these. At most 32 bytes.
std::string_view word_at(std::string_view text, size_t at);

/// True if `word` often begins a sentence. After an initial, a word that is also a surname does not count.
bool is_starter(std::string_view word, bool after_initial);

bool is_speech_verb(std::string_view word);
bool is_time_word(std::string_view word);
bool is_exclaimed_name(std::string_view word);

/// The codes of the languages of sentence_languages.h.
std::vector<std::string> listed_languages();

// ---- what the rest of the text tells ----

/// Facts of a document about the words of its sentences: its language, and its spelling of a word elsewhere. They are
/// found when they are first asked for, in time linear in the document.
class Evidence {
 public:
  /// `language` is a code of ISO 639-1, or empty if the document's words shall tell it.
  Evidence(std::string_view document, std::string_view language) : document_(document), code_(language) {}

  /// The kind of `word`, which stands before a full stop, by the lists of the language, then by those of all.
  Abbreviation abbreviation(std::string_view word);

  /// True if `word`, which begins with a capital, does so because it begins a sentence: is_starter(), one of the
  /// frequent words of the language, or a word that the document elsewhere begins in lower case.
  bool begins_sentence(std::string_view word);

  /// True if the language writes ordinal numbers with a full stop.
  bool has_ordinals();

  /// True if the language is Greek, or unknown.
  bool may_be_greek();

  /// True if `number` with a full stop is an ordinal number, which `next` continues. `before` is the word before it.
  bool is_ordinal(std::string_view number, std::string_view before, std::string_view next);

  /// True if `word` is one of the frequent words of the language.
  bool is_frequent(std::string_view word);

 private:
  static constexpr uint8_t kSmall = 1, kName = 2;  // in lower case; with a capital behind a word in lower case
  static constexpr size_t kUnknown = SIZE_MAX;

  size_t language();
  uint8_t spelling(std::string_view word);

  std::string_view document_;
  std::string_view code_;
  std::optional<size_t> language_;  // its row
  std::optional<std::unordered_map<std::string_view, uint8_t>> spellings_;
};

}  // namespace bert::sentence_classes
