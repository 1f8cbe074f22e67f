#include "data/text/sentence_splitter.h"

#include <algorithm>

#include "data/io/text_parts.h"
#include "data/text/paragraphs.h"
#include "data/text/sentence_classes.h"
#include "data/text/sentence_rules.h"
#include "data/text/unicode.h"

namespace bert {
namespace {

using namespace sentence_classes;

// Bytes that are looked at around a stop. The limits keep the time linear on any text.
constexpr size_t kLongestWord = 32;        // backwards, for an abbreviation
constexpr size_t kLongestCitation = 24;    // "[12, 13]"
constexpr size_t kLongestListItem = 2000;  // from "1." to "2."
constexpr size_t kLongestLabel = 3;        // digits of the "1" of "1."
constexpr size_t kLongestDate = 24;        // "10 października 1896"
constexpr size_t kDigitsOfYear = 4;
constexpr int kLongestSpeaker = 4;  // words: "Mrs. Mary Abbot asked"

/// Signs that may end a sentence, such as "." or "?!", and the quotation marks and brackets behind these.
struct Stop {
  size_t begin = 0;      // of the signs
  size_t signs_end = 0;  // after the signs
  size_t end = 0;        // after quotation marks, brackets, citations and faces
  bool full_stop = false;
  bool ellipsis = false;
  bool shouted = false;  // with ! or ?
  bool quoted = false;
};

/// Signs that end a sentence without white space behind them, with the quotation marks and brackets that follow.
struct TerminatorRun {
  size_t end = 0;
  bool ends_sentence = false;
};

/// Finds the ends of the sentences of one paragraph, from its beginning to its end.
class SentenceScanner {
 public:
  /// `evidence` is that of the document around `text`.
  SentenceScanner(std::string_view text, Evidence& evidence) : text_(text), evidence_(evidence) {}

  /// The end of the sentence that begins at `begin`, after its last sign.
  size_t sentence_end(size_t begin) {
    begin_ = begin;
    first_word_ = skip_openers(begin);
    in_small_letters_ = begins_in_small_letter(first_word_);
    const size_t limit = list_item_end();
    for (size_t i = begin; i < limit;) {
      if (!may_begin_sign(text_[i])) {
        ++i;
        continue;
      }
      const DecodedUtf8 sign = at(i);
      if (is_terminator(sign.value)) {
        const TerminatorRun signs = terminators(i);
        if (signs.ends_sentence) return signs.end;
        i = signs.end;
        continue;
      }
      if (is_spaced_sign(sign.value) || is_greek_question(i)) {
        const Stop stop = read_stop(i);
        if (ends_sentence(stop)) return stop.end;
        i = stop.end;
        continue;
      }
      i += static_cast<size_t>(sign.bytes);
    }
    return limit;
  }

 private:
  DecodedUtf8 at(size_t position) const { return character_at(text_, position); }
  bool is_break(size_t position) const { return position >= text_.size() || skip_space(text_, position) > position; }
  /// True if an odd number of straight quotation marks stands before `position`, which must not decrease between calls.
  bool quotation_is_open(size_t position) {
    for (; quotes_counted_ < position; ++quotes_counted_) quotation_open_ ^= text_[quotes_counted_] == '"';
    return quotation_open_;
  }
  /// Skips quotation marks, brackets, dashes and bullets; white space behind the last two.
  size_t skip_openers(size_t position) const {
    while (position < text_.size()) {
      const DecodedUtf8 next = at(position);
      const bool spaced = is_dash(next.value) || is_bullet(next.value);
      if (!spaced && !is_opener(next.value)) break;
      position += static_cast<size_t>(next.bytes);
      if (spaced) position = skip_space(text_, position);
    }
    return position;
  }
  size_t skip_closers(size_t position, bool* quoted) const {
    while (position < text_.size()) {
      const DecodedUtf8 next = at(position);
      const size_t after = position + static_cast<size_t>(next.bytes);
      const bool initial_quote = next.value >= 0x80 && is_initial_quote(next.value);
      if (initial_quote ? !is_break(after) : !is_closer(next.value)) break;
      *quoted |= next.value == '"' || next.value == '\'' || next.value >= 0x80;
      position = after;
    }
    return position;
  }
  /// Skips [12], [3, 4], [a], [...] or [citation needed].
  size_t skip_citation(size_t position) const {
    if (position >= text_.size() || text_[position] != '[') return position;
    const std::string_view rest = text_.substr(position + 1, kLongestCitation);
    const size_t length = rest.find(']');
    if (length == std::string_view::npos || length == 0) return position;
    const std::string_view content = rest.substr(0, length);
    const auto letters =
        std::ranges::count_if(content, [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
    const bool is_note = content.starts_with("note ") || content == "citation needed";
    return letters <= 2 || is_note ? position + length + 2 : position;
  }
  /// Skips white space followed by text that begins no sentence: a closing mark, ! or ? by itself, a citation, a face.
  size_t skip_appendages(size_t position) {
    for (;;) {
      const size_t next = skip_space(text_, position);
      if (next == position || next == text_.size()) return position;
      size_t after = text_[begin_] == '[' ? next : skip_citation(next);  // "[1] A. [2] B." is a list
      for (const std::string_view face : sentence_rules::kFaces) {
        if (text_.substr(next).starts_with(face)) after = std::max(after, next + face.size());
      }
      if (after == next) {
        const DecodedUtf8 sign = at(next);
        const bool closes = sign.value == '"'
                                ? quotation_is_open(next)
                                : is_closer(sign.value) && sign.value != '\'' && sign.value != '*' && sign.value != '_';
        if (closes || sign.value == '!' || sign.value == '?') after = next + static_cast<size_t>(sign.bytes);
        while (after > next && after < text_.size() && is_spaced_sign(at(after).value)) {
          after += static_cast<size_t>(at(after).bytes);
        }
      }
      if (after == next || !is_break(after)) return position;
      position = after;
    }
  }
  /// The end of the list item "1. ..." before its successor "2. ...", or the end of the text. Bullets and letters likewise.
  size_t list_item_end() const {
    const std::string_view text = text_.substr(begin_, kLongestListItem);
    const DecodedUtf8 first = at(begin_);
    std::string successor = " ";
    if (is_bullet(first.value)) {
      successor += text.substr(0, static_cast<size_t>(first.bytes));
    } else {
      const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
      const size_t label = std::max<size_t>(digits, 1);
      const std::string_view rest = text.substr(label);
      const std::string_view suffix = rest.substr(0, rest.starts_with(".)") ? 2 : 1);
      if ((suffix != "." && suffix != ")" && suffix != ".)") || !is_break(begin_ + label + suffix.size()))
        return text_.size();
      if (digits > 0 && digits <= kLongestLabel) {
        successor += std::to_string(std::stoi(std::string(text.substr(0, digits))) + 1);
      } else if (digits == 0 && first.value >= 'a' && first.value < 'z') {
        successor += static_cast<char>(first.value + 1);
      } else {
        return text_.size();
      }
      successor.append(suffix) += ' ';
    }
    const size_t found = text.find(successor, 1);
    if (found == std::string_view::npos) return text_.size();
    const std::string_view label = text.substr(found + 1, successor.size() - 3);
    const bool ordinal = is_digit(first.value) && successor.ends_with(". ") &&
                         !is_spaced_sign(at(begin_ + found - 1).value) &&
                         is_part_of_number(label, begin_ + found + successor.size());
    return ordinal ? text_.size() : begin_ + found;  // "1. Dünya Savaşı ve 2. Dünya Savaşı"
  }
  Stop read_stop(size_t position) {
    Stop stop{.begin = position, .signs_end = position};
    for (DecodedUtf8 sign = at(position); sign.bytes > 0; sign = at(stop.signs_end)) {
      if (!is_spaced_sign(sign.value) && !(is_greek_question_mark(sign.value) && stop.signs_end == position)) break;
      stop.shouted |= sign.value != '.' && sign.value != U'\u2026';
      stop.signs_end += static_cast<size_t>(sign.bytes);
    }
    stop.full_stop = text_.substr(position, stop.signs_end - position) == ".";
    stop.ellipsis = !stop.full_stop && !stop.shouted;
    stop.end = skip_closers(stop.signs_end, &stop.quoted);
    for (size_t after = skip_citation(stop.end); after > stop.end; after = skip_citation(stop.end)) stop.end = after;
    stop.end = skip_appendages(stop.end);
    return stop;
  }
  /// The signs that begin at `position`, with the quotation marks and brackets behind them.
  TerminatorRun terminators(size_t position) const {
    const DecodedUtf8 sign = at(position);
    size_t end = position + static_cast<size_t>(sign.bytes);
    const auto& wide = sentence_rules::kWideFullStops;
    if (std::ranges::find(wide, sign.value) != wide.end()) {
      const char32_t next = at(end).value;  // digits and letters, of half and full width
      if (next < 0x80 ? next != U'\0' && !is_space(static_cast<char>(next)) : next >= U'\uff10' && next <= U'\uff5a')
        return {end, false};
    }
    for (DecodedUtf8 next = at(end); next.bytes > 0 && (is_terminator(next.value) || is_spaced_sign(next.value));
         next = at(end)) {
      end += static_cast<size_t>(next.bytes);
    }
    const size_t signs_end = end;
    while (at(end).bytes > 0 && is_closer(at(end).value)) end += static_cast<size_t>(at(end).bytes);
    const auto& continuations = sentence_rules::kContinuations;
    const bool continues =
        std::ranges::any_of(continuations, [&](std::string_view word) { return text_.substr(end).starts_with(word); });
    return {end, end == signs_end || !continues};
  }
  bool ends_sentence(const Stop& stop) const {
    if (stop.end == text_.size()) return true;
    const size_t next = skip_space(text_, stop.end);
    if (next == text_.size()) return true;
    if (next == stop.end) {
      // Chinese with half-width signs: no white space, no cases.
      return stop.shouted && stop.end == stop.signs_end && is_caseless(at(next).value) &&
             is_caseless(last_character(text_.substr(0, stop.begin)));
    }
    const char first = text_[next];
    if (first == '.' && !is_letter(at(next + 1).value)) return false;  // ". . ."
    if (std::string_view(",;:)]}%").find(first) != std::string_view::npos) return false;
    if (first == '/' && is_break(next + 1)) return false;  // "40 hab. / km"
    if (stop.ellipsis && stop.begin > begin_ && (text_[stop.begin - 1] == '[' || text_[stop.begin - 1] == '('))
      return false;
    const size_t next_begin = skip_openers(next);
    if (begins_in_small_letter(next_begin) && (!in_small_letters_ || stop.quoted || stop.ellipsis || next_begin > next))
      return false;
    if (stop.full_stop) return !is_part_of_word(stop, next);
    if (stop.quoted && names_speaker(next)) return false;
    return !(stop.shouted && is_exclaimed_name(word_before(stop.begin)) && !is_starter(word_at(text_, next), false));
  }
  /// True for "the", not for "iPhone".
  bool begins_in_small_letter(size_t position) const {
    const DecodedUtf8 first = at(position);
    return is_small(first.value) && !is_capital(at(position + static_cast<size_t>(first.bytes)).value);
  }
  /// True if a speaker's name and a verb stand at `position`, such as "Mrs. Abbot asked".
  bool names_speaker(size_t position) const {
    for (int i = 0; i < kLongestSpeaker; ++i) {
      const std::string_view word = word_at(text_, position);
      if (i > 0 && is_speech_verb(word)) return !text_.substr(position + word.size()).starts_with(" that ");
      if (!is_capital(at(position).value) || (i == 0 && word != "I" && is_starter(word, false))) return false;
      position += word.size();
      if (position < text_.size() && text_[position] == '.') ++position;
      if (position >= text_.size() || text_[position] != ' ') return false;
      ++position;
    }
    return false;
  }
  /// The word that ends at `position`, with full stops in it, such as "U.S".
  std::string_view word_before(size_t position) const {
    size_t begin = position;
    while (begin > begin_ && position - begin < kLongestWord && !is_space(text_[begin - 1])) --begin;
    for (size_t i = begin; i < position;) {
      const DecodedUtf8 next = at(i);
      i += static_cast<size_t>(next.bytes);
      const bool in_word = next.value == '.' || next.value == '\'' || next.value == U'\u00b0' ||
                           next.value == U'\u00ba' || is_digit(next.value) || is_letter(next.value) ||
                           is_mark(next.value);
      if (!in_word) begin = std::min(i, position);
    }
    return text_.substr(begin, position - begin);
  }
  /// True if the single letter `word` abbreviates a name, which continues with `next_word`.
  bool is_initial_of_name(std::string_view word, std::string_view next_word) const {
    const auto offset = static_cast<size_t>(word.data() - text_.data());
    if (word == "I" && offset >= 2 && text_[offset - 1] == ' ') {  // "you and I.", not "Albert I. Jones"
      const std::string_view before = word_before(text_[offset - 2] == ',' ? offset - 2 : offset - 1);
      if (!before.empty() && is_small(decode_utf8(before).value)) return false;
    }
    return !is_starter(next_word, true);
  }
  /// True if the full stop is part of an abbreviation, an initial or a number, and `next` continues the sentence.
  bool is_part_of_word(const Stop& stop, size_t next) const {
    const std::string_view word = word_before(stop.begin);
    if (word.empty()) return false;
    const size_t next_begin = skip_openers(next);
    const std::string_view next_word = word_at(text_, next_begin);
    const DecodedUtf8 first = decode_utf8(word);
    const bool single_letter = static_cast<size_t>(first.bytes) == word.size() && is_letter(first.value);
    const bool after_bracket = word.data() > text_.data() && *(word.data() - 1) == '(';
    const bool dotted_letter = next_word.size() == 1 && text_.substr(next_begin + 1).starts_with('.');
    if (word.data() <= text_.data() + first_word_ && (single_letter || is_list_number(word))) return true;
    const bool bracket = text_[next] == '(' || text_[next] == '[';
    const auto continues = [&] {
      return !stop.quoted && (bracket || dotted_letter || !evidence_.begins_sentence(next_word));
    };
    switch (evidence_.abbreviation(word)) {
      case Abbreviation::kNeverEnds:
        return true;
      case Abbreviation::kBeforeDigits:
        return is_digit(at(next_begin).value) || (single_letter && (dotted_letter || after_bracket));  // z. B., (b. May
      case Abbreviation::kBeforeNumerals:
        return is_digit(at(next_begin).value) || is_numeral(next_word, text_.substr(next_begin + next_word.size()));
      case Abbreviation::kMayEnd:
        return continues();
      case Abbreviation::kDate:
        return begins_in_small_letter(next_begin) || (opens_with_date(word) && continues());
      case Abbreviation::kHour:
        return bracket || is_time_word(next_word) || begins_in_small_letter(next_begin);
      case Abbreviation::kNone:
        break;
    }
    if (single_letter && (is_capital(first.value) || in_small_letters_)) {
      return dotted_letter || is_initial_of_name(word, next_word);
    }
    if (is_initialism(word, in_small_letters_)) return continues();
    return (single_letter && dotted_letter) || (!stop.quoted && is_part_of_number(word, next_begin));
  }
  /// True if `number` is an ordinal number or part of a date such as "5. 7. 1990", which the text at `next` continues.
  bool is_part_of_number(std::string_view number, size_t next) const {
    const auto all_digits = [](std::string_view word) {
      return !word.empty() && word.find_first_not_of("0123456789") == std::string_view::npos;
    };
    const auto begin = static_cast<size_t>(number.data() - text_.data());
    const std::string_view next_word = word_at(text_, next);
    const std::string_view before = begin > begin_ && is_space(text_[begin - 1]) ? word_before(begin - 1) : "";
    if (!all_digits(next_word)) return !next_word.empty() && evidence_.is_ordinal(number, before, next_word);
    const bool month_follows = next_word.size() <= 2 && text_.substr(next + next_word.size()).starts_with('.');
    const bool year_follows =
        next_word.size() == kDigitsOfYear && before.ends_with('.') && all_digits(before.substr(0, before.size() - 1));
    return number.size() <= 2 && all_digits(number) && (month_follows || year_follows) && evidence_.has_ordinals();
  }
  /// True if the sentence has just begun with a date, such as "W styczniu 2011 r", which `word` ends.
  bool opens_with_date(std::string_view word) const {
    return static_cast<size_t>(word.data() - text_.data()) - begin_ <= kLongestDate &&
           (is_digit(at(first_word_).value) || evidence_.is_frequent(word_at(text_, first_word_)));
  }
  /// True if a question mark of Greek stands at `position`: a ; behind a Greek word.
  bool is_greek_question(size_t position) const {
    if (!is_greek_question_mark(at(position).value)) return false;
    const std::string_view word = word_before(position);
    const DecodedUtf8 first = word.empty() ? DecodedUtf8{U'\0', 0} : decode_utf8(word);
    return static_cast<size_t>(first.bytes) < word.size() && is_greek_letter(first.value) && evidence_.may_be_greek();
  }

  std::string_view text_;
  Evidence& evidence_;
  size_t begin_ = 0;               // of the sentence
  size_t first_word_ = 0;          // the same without quotation marks and brackets
  bool in_small_letters_ = false;  // the sentence begins in lower case, and so may the next
  size_t quotes_counted_ = 0;      // bytes of the text
  bool quotation_open_ = false;    // of straight quotation marks, after these bytes
};

std::string single_spaced(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (const char c : trimmed(text)) {
    if (!is_space(c)) {
      result += c;
    } else if (result.back() != ' ') {
      result += ' ';
    }
  }
  return result;
}

std::vector<std::string> sentences_of(std::string_view paragraph, Evidence& evidence) {
  std::vector<std::string> sentences;
  const std::string_view text = trimmed(paragraph);
  SentenceScanner scanner(text, evidence);
  for (size_t begin = skip_space(text, 0); begin < text.size();) {
    const size_t end = scanner.sentence_end(begin);
    sentences.push_back(single_spaced(text.substr(begin, end - begin)));
    begin = skip_space(text, end);
  }
  return sentences;
}

}  // namespace

std::vector<std::string> split_sentences(std::string_view paragraph, std::string_view language) {
  Evidence evidence(paragraph, language);
  return sentences_of(paragraph, evidence);
}

void split_document(std::string_view document, const std::function<void(std::string_view)>& sentence,
                    std::string_view language) {
  Evidence evidence(document, language);
  for_each_paragraph(document, [&](std::string_view paragraph) {
    for (const std::string& found : sentences_of(paragraph, evidence)) sentence(found);
  });
}

void split_prose(std::string_view text, const std::function<void(std::string_view)>& line, std::string_view language) {
  constexpr std::string_view kByteOrderMark = "\ufeff";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const size_t blanks_to_end = blank_lines_between_documents(text);
  size_t blank = 0;
  std::string_view document = text.substr(0, 0);
  const auto end_document = [&] {
    bool any = false;
    const auto take = [&](std::string_view sentence) {
      line(sentence);
      any = true;
    };
    split_document(document, take, language);
    if (any) line("");
  };
  while (!text.empty()) {
    const std::string_view found = take_part(text, '\n');
    const bool is_blank = trimmed(found).empty();
    blank = is_blank ? blank + 1 : 0;
    document = {document.data(), static_cast<size_t>(text.data() - document.data())};
    if (blank != blanks_to_end) continue;
    end_document();
    document = text.substr(0, 0);
  }
  end_document();
}

}  // namespace bert
