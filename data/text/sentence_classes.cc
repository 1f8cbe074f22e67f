#include "data/text/sentence_classes.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "data/io/text_parts.h"
#include "data/text/sentence_languages.h"
#include "data/text/sentence_rules.h"

namespace bert::sentence_classes {
namespace {

namespace rules = sentence_rules;

constexpr size_t kLongestWord = 32;  // bytes; longer words are in no list

utf8proc_category_t category(char32_t value) {
  static const auto kAscii = [] {
    std::array<utf8proc_category_t, 0x80> categories{};
    for (utf8proc_int32_t code = 0; code < 0x80; ++code)
      categories[static_cast<size_t>(code)] = utf8proc_category(code);
    return categories;
  }();
  if (value < kAscii.size()) return kAscii[value];
  return value == kInvalidUtf8 ? UTF8PROC_CATEGORY_CN : utf8proc_category(static_cast<utf8proc_int32_t>(value));
}

bool is_one_of(char32_t value, std::string_view ascii) {
  return ascii.find(static_cast<char>(value)) != std::string_view::npos;
}

template <size_t N>
bool is_one_of(char32_t value, const std::array<char32_t, N>& values) {
  return std::ranges::find(values, value) != values.end();
}

std::array<bool, 256> first_bytes_of_signs() {
  std::array<bool, 256> table{};
  const auto add = [&](char32_t value) {
    std::string bytes;
    append_utf8(value, bytes);
    table[static_cast<uint8_t>(bytes[0])] = true;
  };
  for (const char32_t value : {U'.', U'!', U'?', U'\u2026', U';', U'\u037e'}) add(value);
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
    if (const std::string_view word = take_part(list, ' '); !word.empty()) use(word);
  }
}

using Words = std::unordered_set<std::string_view>;

Words words_of(std::string_view list) {
  Words words;
  each_word(list, [&](std::string_view word) { words.insert(word); });
  return words;
}

using Abbreviations = std::unordered_map<std::string_view, Abbreviation>;

Abbreviations abbreviations() {
  Abbreviations kinds;
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

/// The lists of one row of kLanguages.
struct LanguageLists {
  explicit LanguageLists(const rules::Language& row)
      : words(words_of(row.words)), before_ordinal(words_of(row.before_ordinal)) {
    const auto add = [&](std::string_view list, Abbreviation kind) {
      each_word(list, [&](std::string_view word) { abbreviations.emplace(word, kind); });
    };
    add(row.never_ends, Abbreviation::kNeverEnds);
    add(row.before_digits, Abbreviation::kBeforeDigits);
    add(row.may_end, Abbreviation::kMayEnd);
    add(row.dates, Abbreviation::kDate);
    add(row.plain, Abbreviation::kNone);
  }
  Words words, before_ordinal;
  Abbreviations abbreviations;
};

/// All rows, and for each word the rows that have it.
struct Languages {
  Languages() {
    for (size_t row = 0; row < rules::kLanguages.size(); ++row) {
      lists.emplace_back(rules::kLanguages[row]);
      for (const std::string_view word : lists[row].words) of_word[word] |= 1U << row;
      for (const auto& [word, kind] : lists[row].abbreviations) abbreviations.insert(word);
    }
  }
  static const Languages& all() {
    static const Languages kAll;
    return kAll;
  }
  std::vector<LanguageLists> lists;
  std::unordered_map<std::string_view, uint32_t> of_word;
  Words abbreviations;  // of any row
};
static_assert(rules::kLanguages.size() <= 32, "a bit for each row");

bool is_single_letter(std::string_view word) {
  return !word.empty() && static_cast<size_t>(decode_utf8(word).bytes) == word.size();
}

bool begins_with_capital(std::string_view word) { return !word.empty() && is_capital(decode_utf8(word).value); }

/// The form of `word` in the lists: lower case, but a single letter as it is written.
std::string listed_form(std::string_view word) {
  return is_single_letter(word) ? std::string(word) : in_lower_case(word);
}

bool is_roman(std::string_view word) {
  return word.size() > 1 && word.find_first_not_of("IVXLC") == std::string_view::npos;
}

/// Calls `use` with each word of a text and its position.
template <typename Use>
void each_word_of_text(std::string_view text, const Use& use) {
  for (size_t at = 0; at < text.size();) {
    const std::string_view word = word_at(text, at);
    if (!word.empty()) use(word, at);
    at += word.empty() ? static_cast<size_t>(character_at(text, at).bytes) : word.size();
  }
}

/// The row of kLanguages whose words are most frequent in `text`; SIZE_MAX if they are rare.
size_t language_of(std::string_view text) {
  constexpr size_t kRarest = 20;  // frequent words are one word of six in Finnish, one of two in English
  const Languages& languages = Languages::all();
  std::array<size_t, rules::kLanguages.size()> counts{};
  size_t words = 0;
  each_word_of_text(text, [&](std::string_view word, size_t) {
    ++words;
    const auto found = languages.of_word.find(begins_with_capital(word) ? listed_form(word) : word);
    for (uint32_t rows = found == languages.of_word.end() ? 0 : found->second; rows != 0; rows &= rows - 1)
      ++counts[static_cast<size_t>(std::countr_zero(rows))];
  });
  const auto best = std::ranges::max_element(counts);
  return *best * kRarest < words || *best == 0 ? SIZE_MAX : static_cast<size_t>(best - counts.begin());
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

bool is_greek_letter(char32_t value) {
  return ((value >= 0x370 && value < 0x400) || (value >= 0x1F00 && value < 0x2000)) && is_letter(value);
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

bool is_list_number(std::string_view word) {
  constexpr size_t kLongest = 5;  // bytes of "12", "xii" or "2.1.3"
  const auto all = [&](std::string_view allowed) { return word.find_first_not_of(allowed) == std::string_view::npos; };
  if (word.size() > kLongest) return false;
  return (is_digit(static_cast<unsigned char>(word[0])) && all("0123456789.")) || all("ivxlc") || all("IVXLC");
}

bool is_numeral(std::string_view word, std::string_view rest) {
  if (word == "A" || (word == "I" && rest.starts_with(' '))) return false;
  if (word.size() == 1) return is_capital(static_cast<unsigned char>(word[0]));
  return !word.empty() && word.find_first_not_of("IVXLC") == std::string_view::npos;
}

std::string_view word_at(std::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && end - at < kLongestWord) {
    if (text[end] >= 'a' && text[end] <= 'z') {
      ++end;
      continue;
    }
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

bool is_exclaimed_name(std::string_view word) {
  static const Words kNames = words_of(rules::kExclaimedNames);
  return kNames.contains(word);
}

std::vector<std::string> listed_languages() {
  std::vector<std::string> codes;
  codes.reserve(rules::kLanguages.size());
  for (const rules::Language& language : rules::kLanguages) codes.emplace_back(language.code);
  return codes;
}

size_t Evidence::language() {
  constexpr size_t kEnough = size_t{1} << 14;  // bytes, some thousands of words
  if (language_) return *language_;
  if (code_.empty()) {
    language_ = language_of(document_.substr(0, kEnough));
  } else {
    const auto& all = rules::kLanguages;
    const auto row = std::ranges::find_if(all, [&](const auto& language) { return language.code == code_; });
    language_ = row == all.end() ? kUnknown : static_cast<size_t>(row - all.begin());
  }
  return *language_;
}

uint8_t Evidence::spelling(std::string_view word) {
  if (!spellings_) {
    spellings_.emplace();
    size_t end_of_small = SIZE_MAX;  // of the word in lower case before
    each_word_of_text(document_, [&](std::string_view each, size_t at) {
      const bool small = is_small(decode_utf8(each).value);
      if (small) (*spellings_)[each] |= kSmall;
      if (begins_with_capital(each) && end_of_small < at && document_.substr(end_of_small, at - end_of_small) == " ")
        (*spellings_)[each] |= kName;
      end_of_small = small ? at + each.size() : SIZE_MAX;
    });
  }
  const auto found = spellings_->find(word);
  return found == spellings_->end() ? uint8_t{0} : found->second;
}

Abbreviation Evidence::abbreviation(std::string_view word) {
  const Languages& languages = Languages::all();
  if (word.size() <= kLongestWord) {
    for (const std::string& form : {std::string(word), listed_form(word)}) {
      if (!languages.abbreviations.contains(form) || language() == kUnknown) continue;
      const Abbreviations& kinds = languages.lists[language()].abbreviations;
      if (const auto found = kinds.find(form); found != kinds.end()) return found->second;
    }
  }
  return sentence_classes::abbreviation(word);
}

bool Evidence::is_frequent(std::string_view word) {
  return language() != kUnknown && Languages::all().lists[language()].words.contains(in_lower_case(word));
}

bool Evidence::begins_sentence(std::string_view word) {
  if (is_starter(word, false)) return true;
  if (language() == kUnknown || rules::kLanguages[language()].code == "en") return false;
  return is_frequent(word) || (spelling(in_lower_case(word)) & kSmall) != 0;
}

bool Evidence::has_ordinals() {
  return language() != kUnknown && rules::kLanguages[language()].ordinals != rules::Ordinals::kNone;
}

bool Evidence::may_be_greek() { return language() == kUnknown || rules::kLanguages[language()].code == "el"; }

bool Evidence::is_ordinal(std::string_view number, std::string_view before, std::string_view next) {
  constexpr size_t kLongestOrdinal = 3;  // digits; four are a year
  const bool roman = is_roman(number);
  const bool digits = number.size() <= kLongestOrdinal && number.find_first_not_of("0123456789") == std::string::npos;
  if ((!roman && !digits) || !has_ordinals()) return false;
  const rules::Language& row = rules::kLanguages[language()];
  const std::string next_in_small = in_lower_case(next);
  bool continues = is_small(decode_utf8(next).value) || is_roman(next);  // "des 5. bis", "lat 50. XIV w."
  each_word(row.after_ordinal, [&](std::string_view word) { continues |= next_in_small.starts_with(word); });
  if (continues) return true;
  if (is_frequent(next) || is_starter(next, false)) return false;
  if (Languages::all().lists[language()].before_ordinal.contains(in_lower_case(before))) return true;
  if ((spelling(next_in_small) & kSmall) != 0) return false;
  if (row.ordinals == rules::Ordinals::kAny || (roman && row.ordinals == rules::Ordinals::kRoman)) return true;
  return row.ordinals == rules::Ordinals::kNoun && (spelling(next) & kName) != 0;
}

}  // namespace bert::sentence_classes
