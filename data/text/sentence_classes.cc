#include "data/text/sentence_classes.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>

#include "data/text/sentence_rules.h"

namespace bert::sentence_classes {
namespace {

namespace rules = sentence_rules;

constexpr size_t kLongestWord = 32;  // bytes; longer words are in no list

utf8proc_category_t category(char32_t value) {
  return value == kInvalidUtf8 ? UTF8PROC_CATEGORY_CN : utf8proc_category(static_cast<utf8proc_int32_t>(value));
}

bool is_one_of(char32_t value, std::string_view ascii) {
  return ascii.find(static_cast<char>(value)) != std::string_view::npos;
}

template <size_t N>
bool is_one_of(char32_t value, const std::array<char32_t, N>& values) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

std::array<bool, 256> first_bytes_of_signs() {
  std::array<bool, 256> table{};
  const auto add = [&](char32_t value) {
    std::string bytes;
    append_utf8(value, bytes);
    table[static_cast<uint8_t>(bytes[0])] = true;
  };
  for (const char32_t value : {U'.', U'!', U'?', U'\u2026'}) add(value);
  for (const char32_t value : rules::kSpacedSigns) add(value);
  for (const auto& [first, last] : rules::kTerminators) {
    add(first);
    add(last);
  }
  return table;
}

std::string in_lower_case(std::string_view word) {
  std::string lower;
  while (!word.empty()) {
    const DecodedUtf8 next = decode_utf8(word);
    const auto bytes = static_cast<size_t>(next.bytes);
    if (next.value == kInvalidUtf8) {
      lower.append(word.substr(0, bytes));
    } else {
      append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(next.value))), lower);
    }
    word.remove_prefix(bytes);
  }
  return lower;
}

/// Calls `use` with each word of a list of sentence_rules.h.
template <typename Use>
void each_word(std::string_view list, const Use& use) {
  while (!list.empty()) {
    const size_t end = std::min(list.find(' '), list.size());
    if (end > 0) use(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
}

using Words = std::unordered_set<std::string_view>;

Words words_of(std::string_view list) {
  Words words;
  each_word(list, [&](std::string_view word) { words.insert(word); });
  return words;
}

std::unordered_map<std::string_view, Abbreviation> abbreviations() {
  std::unordered_map<std::string_view, Abbreviation> kinds;
  const auto add = [&](std::string_view list, Abbreviation kind) {
    each_word(list, [&](std::string_view word) { kinds.emplace(word, kind); });
  };
  add(rules::kNeverEnd, Abbreviation::kNeverEnds);
  add(rules::kBeforeDigits, Abbreviation::kBeforeDigits);
  add(rules::kBeforeNumerals, Abbreviation::kBeforeNumerals);
  add(rules::kMayEnd, Abbreviation::kMayEnd);
  add(rules::kHours, Abbreviation::kHour);
  return kinds;
}

}  // namespace

DecodedUtf8 character_at(std::string_view text, size_t at) {
  return at < text.size() ? decode_utf8(text.substr(at)) : DecodedUtf8{U'\0', 0};
}

size_t skip_space(std::string_view text, size_t at) {
  while (at < text.size()) {
    if (is_space(text[at])) {
      ++at;
      continue;
    }
    const DecodedUtf8 next = character_at(text, at);
    if (next.value < 0x80 || next.value == kInvalidUtf8 || !is_python_space(next.value)) break;
    at += static_cast<size_t>(next.bytes);
  }
  return at;
}

char32_t last_character(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0 && text.size() - begin < 4) {  // the longest UTF-8
    const DecodedUtf8 last = decode_utf8(text.substr(--begin));
    if (last.value != kInvalidUtf8) return last.value;
  }
  return U'\0';
}

bool is_caseless(char32_t value) { return category(value) == UTF8PROC_CATEGORY_LO; }

bool is_mark(char32_t value) {
  const auto kind = category(value);
  return kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME;
}

bool is_letter(char32_t value) {
  const auto kind = category(value);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_capital(char32_t value) {
  const auto kind = category(value);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LT;
}

bool is_small(char32_t value) {
  const auto code = static_cast<utf8proc_int32_t>(value);
  return category(value) == UTF8PROC_CATEGORY_LL && utf8proc_totitle(code) != code;
}

bool is_closer(char32_t value) {
  if (value < 0x80) return is_one_of(value, "\"')]}*_");
  const auto kind = category(value);
  return kind == UTF8PROC_CATEGORY_PE || kind == UTF8PROC_CATEGORY_PF;
}

bool is_initial_quote(char32_t value) { return category(value) == UTF8PROC_CATEGORY_PI; }

bool is_opener(char32_t value) {
  if (value < 0x80) return is_one_of(value, "\"'`([{*_");
  const auto kind = category(value);
  return kind == UTF8PROC_CATEGORY_PS || kind == UTF8PROC_CATEGORY_PI || kind == UTF8PROC_CATEGORY_PF ||
         value == U'\u00bf' || value == U'\u00a1';
}

bool is_dash(char32_t value) { return category(value) == UTF8PROC_CATEGORY_PD; }
bool is_bullet(char32_t value) { return is_one_of(value, rules::kBullets); }

bool is_terminator(char32_t value) {
  const auto after = std::upper_bound(rules::kTerminators.begin(), rules::kTerminators.end(), value,
                                      [](char32_t x, const auto& range) { return x < range.first; });
  return after != rules::kTerminators.begin() && value <= (after - 1)->second;
}

bool is_spaced_sign(char32_t value) {
  if (value < 0x80) return is_one_of(value, ".!?");
  return value == U'\u2026' || is_one_of(value, rules::kSpacedSigns);
}

bool may_begin_sign(char byte) {
  static const auto kTable = first_bytes_of_signs();
  return kTable[static_cast<uint8_t>(byte)];
}

Abbreviation abbreviation(std::string_view word) {
  static const auto kKinds = abbreviations();
  if (word.empty() || word.size() > kLongestWord) return Abbreviation::kNone;
  if (const auto as_written = kKinds.find(word); as_written != kKinds.end()) return as_written->second;
  if (static_cast<size_t>(decode_utf8(word).bytes) == word.size()) return Abbreviation::kNone;  // B is an initial
  const std::string lower = in_lower_case(word);
  const auto found = kKinds.find(lower);
  return found == kKinds.end() ? Abbreviation::kNone : found->second;
}

bool is_initialism(std::string_view word, bool small_letters) {
  constexpr size_t kLongestPart = 4;  // M.Phil
  if (word.size() > kLongestWord) return false;
  size_t parts = 0, letters = 0;
  for (size_t at = 0; at < word.size();) {
    const DecodedUtf8 next = character_at(word, at);
    at += static_cast<size_t>(next.bytes);
    if (next.value == '.') {
      if (letters == 0) return false;
      letters = 0;
      continue;
    }
    const bool fits = letters == 0 ? is_capital(next.value) || small_letters : is_small(next.value) && !small_letters;
    if (!is_letter(next.value) || !fits) return false;
    parts += letters == 0;
    if (++letters > kLongestPart) return false;
  }
  return parts > 1 && letters > 0;
}

std::string_view word_at(std::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && end - at < kLongestWord) {
    const DecodedUtf8 next = character_at(text, end);
    const bool joins = next.value == '\'' || next.value == '-' || next.value == U'\u2019';
    if (!is_letter(next.value) && !is_digit(next.value) && !(joins && end > at)) break;
    end += static_cast<size_t>(next.bytes);
  }
  return text.substr(at, end - at);
}

bool is_starter(std::string_view word, bool after_initial) {
  static const Words kStarters = words_of(rules::kStarters), kNames = words_of(rules::kNames);
  // "It's" and "He'd" are It and He; "All-Star" is not All.
  constexpr std::string_view kApostrophe = "\u2019";
  word = word.substr(0, std::min({word.find('\''), word.find(kApostrophe), word.size()}));
  const std::string lower = in_lower_case(word);
  return kStarters.contains(lower) && !(after_initial && kNames.contains(lower));
}

bool is_speech_verb(std::string_view word) {
  static const Words kVerbs = words_of(rules::kSpeechVerbs);
  return kVerbs.contains(word);
}

bool is_time_word(std::string_view word) {
  static const Words kWords = words_of(rules::kTimeWords);
  return kWords.contains(word);
}

bool is_month_after_ordinal(std::string_view word) {
  static const Words kMonths = words_of(rules::kMonthsAfterOrdinals);
  return kMonths.contains(word);
}

bool is_exclaimed_name(std::string_view word) {
  static const Words kNames = words_of(rules::kExclaimedNames);
  return kNames.contains(word);
}

}  // namespace bert::sentence_classes
