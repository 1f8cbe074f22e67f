#include "data/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>

namespace bert {
namespace {

constexpr char32_t kReplacement = 0xFFFD, kCapitalSigma = 0x3A3, kSmallSigma = 0x3C3, kFinalSigma = 0x3C2;
constexpr char32_t kCapitalIWithDot = 0x130, kCombiningDotAbove = 0x307;

struct Range {
  char32_t first, last;
};

template <size_t N>
bool contains(const std::array<Range, N>& ranges, char32_t value) {
  return std::ranges::any_of(ranges, [&](const Range& r) { return r.first <= value && value <= r.last; });
}

// The ranges of _is_chinese_char in Google's tokenization.py.
constexpr std::array<Range, 8> kCjk{{{0x4E00, 0x9FFF},
                                     {0x3400, 0x4DBF},
                                     {0x20000, 0x2A6DF},
                                     {0x2A700, 0x2B73F},
                                     {0x2B740, 0x2B81F},
                                     {0x2B820, 0x2CEAF},
                                     {0xF900, 0xFAFF},
                                     {0x2F800, 0x2FA1F}}};

// Cased characters outside of Lu, Ll and Lt that are not case-ignorable (PropList.txt: Other_Lowercase and
// Other_Uppercase).
constexpr std::array<Range, 7> kOtherCased{{{0xAA, 0xAA},
                                            {0xBA, 0xBA},
                                            {0x2160, 0x217F},
                                            {0x24B6, 0x24E9},
                                            {0x1F130, 0x1F149},
                                            {0x1F150, 0x1F169},
                                            {0x1F170, 0x1F189}}};

// Characters that are case-ignorable by Word_Break = MidLetter, MidNumLet or Single_Quote (WordBreakProperty.txt).
constexpr std::array<char32_t, 17> kIgnorablePunctuation{0x27,   0x2E,   0x3A,   0xB7,   0x387,  0x55F,
                                                         0x5F4,  0x2018, 0x2019, 0x2024, 0x2027, 0xFE13,
                                                         0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};

utf8proc_category_t category(char32_t value) { return utf8proc_category(static_cast<utf8proc_int32_t>(value)); }

bool is_mark(char32_t value) { return category(value) == UTF8PROC_CATEGORY_MN; }

int combining_class(char32_t value) {
  return static_cast<int>(utf8proc_get_property(static_cast<utf8proc_int32_t>(value))->combining_class);
}

/// The property Case_Ignorable of Unicode.
bool is_case_ignorable(char32_t value) {
  switch (category(value)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return std::ranges::find(kIgnorablePunctuation, value) != kIgnorablePunctuation.end();
  }
}

/// The property Cased of Unicode, for characters that are not case-ignorable.
bool is_cased(char32_t value) {
  const utf8proc_category_t c = category(value);
  return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT ||
         contains(kOtherCased, value);
}

/// True if the capital sigma at `at` ends a word: a cased letter stands before it and none after it, ignoring
/// case-ignorable characters.
bool is_final_sigma(const std::vector<SourceCharacter>& characters, size_t at) {
  size_t before = at;
  while (before > 0 && is_case_ignorable(characters[before - 1].value)) --before;
  if (before == 0 || !is_cased(characters[before - 1].value)) return false;
  size_t after = at + 1;
  while (after < characters.size() && is_case_ignorable(characters[after].value)) ++after;
  return after == characters.size() || !is_cased(characters[after].value);
}

char32_t simple_lower(char32_t value) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(value)));
}

/// Calls append(value) for each code point of the lower-case form of the character at `at`.
template <class Append>
void lower_in_context(const std::vector<SourceCharacter>& characters, size_t at, Append&& append) {
  const char32_t value = characters[at].value;
  if (value == kCapitalSigma) {
    append(is_final_sigma(characters, at) ? kFinalSigma : kSmallSigma);
  } else if (value == kCapitalIWithDot) {  // the only lower-case form of two characters (SpecialCasing.txt)
    append(U'i');
    append(kCombiningDotAbove);
  } else {
    append(simple_lower(value));
  }
}

/// Appends the full canonical decomposition of `value`, before canonical ordering.
template <class Append>
void decompose(char32_t value, Append&& append) {
  std::array<utf8proc_int32_t, 32> parts;  // the longest decomposition in Unicode has 4
  int boundary = 0;
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(value), parts.data(), parts.size(),
                                             UTF8PROC_DECOMPOSE, &boundary);
  for (utf8proc_ssize_t i = 0; i < count; ++i) append(static_cast<char32_t>(parts[static_cast<size_t>(i)]));
}

/// Puts every run of combining marks into canonical order, then drops Mn. `characters` are decomposed.
void strip_accents(std::vector<SourceCharacter>& characters) {
  const auto starter = [](const SourceCharacter& c) { return combining_class(c.value) == 0; };
  for (auto run = characters.begin(); run != characters.end();) {
    run = std::find_if_not(run, characters.end(), starter);
    const auto end = std::find_if(run, characters.end(), starter);
    std::stable_sort(run, end, [](const SourceCharacter& a, const SourceCharacter& b) {
      return combining_class(a.value) < combining_class(b.value);
    });
    run = end;
  }
  std::erase_if(characters, [](const SourceCharacter& c) { return is_mark(c.value); });
}

}  // namespace

DecodedUtf8 decode_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xC2 || lead > 0xF4) return {kInvalidUtf8, 1};
  const int length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // Only the bounds of the second byte depend on the first byte. They exclude overlong forms, surrogates and values
  // above 0x10FFFF.
  const unsigned char lowest = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char highest = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  char32_t value = lead & (0x7F >> length);
  for (int i = 1; i < length; ++i) {
    const auto at = static_cast<size_t>(i);
    if (at >= text.size()) return {kInvalidUtf8, i};
    const unsigned char next = byte(at);
    if (next < (i == 1 ? lowest : 0x80) || next > (i == 1 ? highest : 0xBF)) return {kInvalidUtf8, i};
    value = value << 6 | (next & 0x3F);
  }
  return {value, length};
}

void append_utf8(char32_t value, std::string& out) {
  std::array<utf8proc_uint8_t, 4> bytes;
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(value), bytes.data());
  out.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(count));
}

int64_t count_invalid_utf8(std::string_view text) {
  int64_t count = 0;
  while (!text.empty()) {
    const DecodedUtf8 next = decode_utf8(text);
    count += next.value == kInvalidUtf8;
    text.remove_prefix(static_cast<size_t>(next.bytes));
  }
  return count;
}

int64_t drop_invalid_utf8(std::string& text) {
  int64_t count = 0;
  size_t kept = 0;
  for (size_t at = 0; at < text.size();) {
    const DecodedUtf8 next = decode_utf8(std::string_view(text).substr(at));
    const auto bytes = static_cast<size_t>(next.bytes);
    if (next.value == kInvalidUtf8) {
      ++count;
    } else {
      std::copy_n(text.begin() + static_cast<std::ptrdiff_t>(at), bytes,
                  text.begin() + static_cast<std::ptrdiff_t>(kept));
      kept += bytes;
    }
    at += bytes;
  }
  text.resize(kept);
  return count;
}

bool is_python_space(char32_t value) {
  if (value < 0x80) return (value >= 0x9 && value <= 0xD) || (value >= 0x1C && value <= 0x20);
  return value == 0x85 || value == 0x2028 || value == 0x2029 || category(value) == UTF8PROC_CATEGORY_ZS;
}

std::string_view strip_space(std::string_view text) {
  while (!text.empty()) {
    const DecodedUtf8 first = decode_utf8(text);
    if (!is_python_space(first.value)) break;
    text.remove_prefix(static_cast<size_t>(first.bytes));
  }
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && (text[last] & 0xC0) == 0x80) --last;
    if (!is_python_space(decode_utf8(text.substr(last)).value)) break;
    text = text.substr(0, last);
  }
  return text;
}

std::string collapse_space(std::string_view text) {
  std::string result;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const DecodedUtf8 next = decode_utf8(text.substr(at));
    const auto bytes = static_cast<size_t>(next.bytes);
    const bool space = is_python_space(next.value);
    if (!space && !in_word && !result.empty()) result += ' ';
    if (!space) result += text.substr(at, bytes);
    in_word = !space;
    at += bytes;
  }
  return result;
}

std::string lower_case(std::string_view text) {
  std::vector<SourceCharacter> characters;
  for (size_t at = 0; at < text.size(); at += static_cast<size_t>(decode_utf8(text.substr(at)).bytes)) {
    characters.push_back({decode_utf8(text.substr(at)).value, 0, 0});
  }
  std::string result;
  for (size_t i = 0; i < characters.size(); ++i) {
    lower_in_context(characters, i, [&](char32_t value) { append_utf8(value, result); });
  }
  return result;
}

bool is_word_character(char32_t value) {
  const utf8proc_category_t c = category(value);
  return value == '_' || (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO) ||
         (c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO);  // LU LL LT LM LO and ND NL NO are adjacent
}

bool is_bert_punctuation(char32_t value) {
  if (value < 0x80) {
    return (value >= 33 && value <= 47) || (value >= 58 && value <= 64) || (value >= 91 && value <= 96) ||
           (value >= 123 && value <= 126);
  }
  const utf8proc_category_t c = category(value);
  return c >= UTF8PROC_CATEGORY_PC &&
         c <= UTF8PROC_CATEGORY_PO;  // PC PD PS PE PI PF PO are adjacent in the enumeration
}

FoldTable::FoldTable(const Folding& folding) : folding_(folding) {}

FoldTable::~FoldTable() {
  for (auto& block : blocks_) delete block.load();
}

const FoldTable& FoldTable::shared(const Folding& folding) {
  static const FoldTable both({.lower_case = true, .strip_accents = true}),
      lower({.lower_case = true, .strip_accents = false}), strip({.lower_case = false, .strip_accents = true}),
      neither({.lower_case = false, .strip_accents = false});
  static const FoldTable both_simple({.lower_case = true, .strip_accents = true, .final_sigma = false}),
      lower_simple({.lower_case = true, .strip_accents = false, .final_sigma = false});
  if (folding.lower_case && !folding.final_sigma) return folding.strip_accents ? both_simple : lower_simple;
  if (folding.lower_case) return folding.strip_accents ? both : lower;
  return folding.strip_accents ? strip : neither;
}

const FoldTable::Block& FoldTable::make_block(char32_t index) const {
  auto block = std::make_unique<Block>();
  for (char32_t i = 0; i < 256; ++i) (*block)[i] = fold(index << 8 | i);
  const Block* expected = nullptr;
  if (blocks_[index].compare_exchange_strong(expected, block.get(), std::memory_order_acq_rel)) return *block.release();
  return *expected;  // another thread was faster
}

Folded FoldTable::fold(char32_t value) const {
  const utf8proc_category_t c = category(value);
  if (value == '\t' || value == '\n' || value == '\r') return {.kind = CharacterKind::kSpace};
  if (c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF || value == kReplacement) {
    return {.kind = CharacterKind::kDropped};
  }
  if (is_python_space(value)) return {.kind = CharacterKind::kSpace};
  if (folding_.lower_case && folding_.final_sigma && value == kCapitalSigma) return {.kind = CharacterKind::kContext};

  std::vector<SourceCharacter> parts{{value, 0, 0}};
  if (folding_.strip_accents) {
    bool reorders = false;  // true if a character that is kept can be moved by canonical ordering
    decompose(folding_.lower_case ? simple_lower(value) : value,
              [&](char32_t part) { reorders |= combining_class(part) != 0 && !is_mark(part); });
    // A mark of class 0 stops the ordering of its neighbours, so a run with such a character is folded in context.
    if (reorders) return {.kind = CharacterKind::kContext};
  }
  fold_in_context(parts, folding_);
  if (parts.empty()) return {.kind = CharacterKind::kDropped};

  std::string utf8;
  for (const SourceCharacter& part : parts) append_utf8(part.value, utf8);
  const auto punctuation = std::ranges::count_if(parts, [](auto& p) { return is_bert_punctuation(p.value); });
  if (utf8.size() > Folded::kMaxBytes || (punctuation > 0 && parts.size() > 1))
    return {.kind = CharacterKind::kContext};
  Folded folded{.kind = CharacterKind::kLetter,
                .bytes = static_cast<uint8_t>(utf8.size()),
                .characters = static_cast<uint8_t>(parts.size())};
  if (contains(kCjk, value)) {
    folded.kind = CharacterKind::kCjk;
  } else if (punctuation > 0) {
    folded.kind = CharacterKind::kPunctuation;
  }
  std::ranges::copy(utf8, folded.utf8.begin());
  return folded;
}

void fold_in_context(std::vector<SourceCharacter>& characters, const Folding& folding) {
  std::vector<SourceCharacter> folded;
  folded.reserve(characters.size());
  for (size_t i = 0; i < characters.size(); ++i) {
    const SourceCharacter& from = characters[i];
    const auto append = [&](char32_t value) { folded.push_back({value, from.begin, from.end}); };
    const auto append_parts = [&](char32_t value) { folding.strip_accents ? decompose(value, append) : append(value); };
    if (folding.lower_case && from.value == kCapitalSigma && !folding.final_sigma) {
      append_parts(kSmallSigma);
    } else {
      folding.lower_case ? lower_in_context(characters, i, append_parts) : append_parts(from.value);
    }
  }
  if (folding.strip_accents) strip_accents(folded);
  characters = std::move(folded);
}

}  // namespace bert
