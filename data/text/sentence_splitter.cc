#include "data/text/sentence_splitter.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <unordered_set>

#include "data/text/paragraphs.h"
#include "data/text/unicode.h"

namespace bert {
namespace {

constexpr size_t kLongestListNumber = 4;  // "12." or "xii." begins a list item, "1984." may end a sentence

using Words = std::unordered_set<std::string_view>;

/// In lower case, without the last full stop. A sentence does not end after these.
const Words kAbbreviations = {"mr",   "mrs",  "ms",  "messrs", "mme", "mlle", "dr",     "prof", "rev",  "hon",
                              "st",   "sr",   "fr",  "gen",    "col", "capt", "lt",     "sgt",  "cpl",  "maj",
                              "adm",  "cmdr", "gov", "sen",    "rep", "pres", "supt",   "insp", "esp",  "vs",
                              "viz",  "cf",   "al",  "e.g",    "i.e", "ca",   "approx", "incl", "dept", "univ",
                              "assn", "bros", "mt",  "ft",     "ave", "blvd", "trans"};
/// These end a sentence unless a number follows.
const Words kBeforeNumbers = {"no",   "nos", "vol",  "vols", "fig", "figs", "p",   "pp",  "ch",
                              "chap", "sec", "sect", "art",  "op",  "eq",   "jan", "feb", "mar",
                              "apr",  "jun", "jul",  "aug",  "sep", "sept", "oct", "nov", "dec"};

constexpr std::array<std::string_view, 12> kClosers = {"\"",     "'",      ")",      "]",      "}",      "\u2019",
                                                       "\u201d", "\u00bb", "\u203a", "\u300d", "\u300f", "\uff09"};
constexpr std::array<std::string_view, 15> kOpeners = {
    "\"", "'", "(", "[", "{", "\u2018", "\u201c", "\u00ab", "\u2039", "\u00bf", "\u00a1", "-", "\u2013", "\u2014", "_"};
/// Full stops of Armenian, Arabic and Urdu, the Indic scripts (danda), Burmese, Ethiopic, Khmer, Chinese and Japanese.
/// From Unicode's Sentence_Terminal: the signs that occur only at the end of a sentence.
constexpr std::array<std::string_view, 13> kTerminators = {"\u0589", "\u061f", "\u06d4", "\u0964", "\u0965",
                                                           "\u104b", "\u1362", "\u1367", "\u17d4", "\u3002",
                                                           "\uff01", "\uff1f", "\uff61"};
constexpr std::array<std::string_view, 3> kSigns = {".", "!", "?"};
constexpr std::string_view kEllipsis = "\u2026";

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }

/// Bytes of the first of `signs` that `text` has at position `at`, or 0.
template <size_t N>
size_t match(std::string_view text, size_t at, const std::array<std::string_view, N>& signs) {
  for (const std::string_view sign : signs) {
    if (text.substr(at).starts_with(sign)) return sign.size();
  }
  return 0;
}

template <size_t N>
size_t skip(std::string_view text, size_t at, const std::array<std::string_view, N>& signs) {
  while (const size_t bytes = match(text, at, signs)) at += bytes;
  return at;
}

bool begins_in_lower_case(std::string_view text) {
  if (text.empty()) return false;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(decode_utf8(text).value));
  return category == UTF8PROC_CATEGORY_LL;
}

bool is_list_number(std::string_view word) {
  const auto all = [&](std::string_view allowed) { return word.find_first_not_of(allowed) == std::string_view::npos; };
  return word.size() <= kLongestListNumber && (all("0123456789") || all("ivxlc") || all("IVXLC"));
}

/// True if the full stop after `word` is part of it. `next` is the text after the white space, without opening quotes.
bool is_abbreviation(std::string_view word, bool begins_sentence, std::string_view next) {
  if (begins_sentence && is_list_number(word)) return true;
  if (word.size() == 1) return is_upper(word[0]) && word != "I";
  std::string lower(word);
  for (char& c : lower) c = is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c;
  if (kAbbreviations.contains(lower)) return true;
  if (kBeforeNumbers.contains(lower)) return !next.empty() && is_digit(next[0]);
  // Letters with full stops between them, such as U.S or J.R.R, but not a.m.
  for (size_t i = 0; i < word.size(); ++i) {
    if (i % 2 == 0 ? !is_upper(word[i]) : word[i] != '.') return false;
  }
  return word.size() % 2 == 1;
}

/// The end of the sentence that begins at `begin`, after its last sign.
size_t sentence_end(std::string_view text, size_t begin) {
  const size_t first_word = skip(text, begin, kOpeners);
  for (size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (c != '.' && c != '!' && c != '?' && static_cast<signed char>(c) >= 0) continue;
    if (const size_t terminator = match(text, i, kTerminators))
      return skip(text, skip(text, skip(text, i + terminator, kTerminators), kSigns), kClosers);
    size_t after = i;
    while (after < text.size()) {
      if (text[after] == '.' || text[after] == '!' || text[after] == '?') {
        ++after;
      } else if (text.substr(after).starts_with(kEllipsis)) {
        after += kEllipsis.size();
      } else {
        break;
      }
    }
    if (after == i) continue;
    const bool full_stop = c == '.' && after == i + 1;
    const size_t end = skip(text, after, kClosers);
    if (end == text.size()) return end;
    i = end - 1;
    if (!is_space(text[end])) continue;
    size_t next = end;
    while (next < text.size() && is_space(text[next])) ++next;
    if (next < text.size() && text[next] == '.') continue;  // ". . ."
    next = skip(text, next, kOpeners);
    if (begins_in_lower_case(text.substr(next))) continue;
    if (full_stop) {
      const size_t stop = after - 1;
      size_t word = stop;
      while (word > begin && !is_space(text[word - 1])) --word;
      word = std::min(skip(text, word, kOpeners), stop);
      if (is_abbreviation(text.substr(word, stop - word), word <= first_word, text.substr(next))) continue;
    }
    return end;
  }
  return text.size();
}

std::string single_spaced(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (const char c : strip_ascii_space(text)) {
    if (!is_space(c)) {
      result += c;
    } else if (result.back() != ' ') {
      result += ' ';
    }
  }
  return result;
}

}  // namespace

std::vector<std::string> split_sentences(std::string_view paragraph) {
  std::vector<std::string> sentences;
  const std::string_view text = strip_ascii_space(paragraph);
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = sentence_end(text, begin);
    sentences.push_back(single_spaced(text.substr(begin, end - begin)));
    begin = end;
    while (begin < text.size() && is_space(text[begin])) ++begin;
  }
  return sentences;
}

void split_document(std::string_view document, const std::function<void(std::string_view)>& sentence) {
  for_each_paragraph(document, [&](std::string_view paragraph) {
    for (const std::string& found : split_sentences(paragraph)) sentence(found);
  });
}

void split_prose(std::string_view text, const std::function<void(std::string_view)>& line) {
  constexpr std::string_view kByteOrderMark = "\ufeff";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const size_t blanks_to_end = blank_lines_between_documents(text);
  size_t blank = 0;
  std::string_view document = text.substr(0, 0);
  const auto end_document = [&] {
    bool any = false;
    split_document(document, [&](std::string_view sentence) {
      line(sentence);
      any = true;
    });
    if (any) line("");
  };
  while (!text.empty()) {
    const std::string_view found = take_line(text);
    const bool is_blank = strip_ascii_space(found).empty();
    blank = is_blank ? blank + 1 : 0;
    document = {document.data(), static_cast<size_t>(text.data() - document.data())};
    if (blank != blanks_to_end) continue;
    end_document();
    document = text.substr(0, 0);
  }
  end_document();
}

}  // namespace bert
