// Classes of characters and words for split_sentences, from sentence_rules.h and Unicode's general categories.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

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

/// True if a character that begins with this byte may be a sign of the two kinds.
bool may_begin_sign(char byte);

// ---- words ----

/// Abbreviations, by the text that may follow within the sentence. The lists of sentence_rules.h have the same names.
enum class Abbreviation { kNone, kNeverEnds, kBeforeDigits, kBeforeNumerals, kMayEnd, kHour };

/// The kind of `word`, which stands before a full stop, by the lists alone.
Abbreviation abbreviation(std::string_view word);

/// Letters with full stops between them: U.S, J.R.R, Ph.D; with `small_letters` u.s too.
bool is_initialism(std::string_view word, bool small_letters);

/// The word at `at`: letters, digits, apostrophes, and hyphens between these. At most 32 bytes.
std::string_view word_at(std::string_view text, size_t at);

/// True if `word` often begins a sentence. After an initial, a word that is also a surname does not count.
bool is_starter(std::string_view word, bool after_initial);

bool is_speech_verb(std::string_view word);
bool is_time_word(std::string_view word);
bool is_month_after_ordinal(std::string_view word);
bool is_exclaimed_name(std::string_view word);

}  // namespace bert::sentence_classes
