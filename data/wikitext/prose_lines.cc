#include "data/wikitext/prose_lines.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "data/text/unicode.h"
#include "data/wikitext/markup_scanner.h"
#include "data/wikitext/prose_cleaner.h"
#include "data/wikitext/text_pieces.h"
#include "data/wikitext/wiki_names.h"

namespace bert {
namespace {

/// Frequent verbs in finite forms, in lower case.
constexpr std::string_view kVerbs =
    // English
    "is|are|was|were|be|been|has|have|had|can|could|may|might|must|will|would|shall|should|does|did|became|becomes|"
    "includes|include|contains|consists|"
    // German
    "ist|sind|waren|wird|werden|wurde|wurden|hat|haben|hatte|hatten|kann|können|konnte|muss|müssen|soll|sollte|"
    // French
    "est|sont|était|étaient|fut|furent|ont|avait|avaient|peut|peuvent|sera|"
    // Spanish, Portuguese, Italian
    "fue|fueron|era|eran|ha|han|había|está|están|puede|pueden|são|foi|foram|eram|tem|têm|pode|podem|è|sono|"
    "furono|hanno|aveva|può|possono|"
    // Dutch, Swedish, Danish, Norwegian
    "zijn|werd|werden|heeft|hebben|kunnen|är|hade|kan|blev|er|havde|"
    // Polish, Czech
    "jest|są|był|była|było|byli|je|jsou|byl|byla|bylo|"
    // Russian, Ukrainian
    "был|была|было|были|является|являются|может|могут|стал|стала|був|була|було|були|є|"
    // Turkish, Indonesian, Vietnamese, Persian, Hindi
    "olarak|adalah|merupakan|là|است|بود|شد|है|हैं|था|थे|थी|";

/// Verbs and endings of verbs in scripts without spaces: Chinese, Japanese.
constexpr std::array<std::string_view, 10> kVerbsInText = {"是",     "為",   "为",   "有",   "被",
                                                           "である", "した", "する", "いる", "れる"};

bool has_verb(std::string_view prose) {
  static const std::unordered_set<std::string_view> verbs = [] {
    std::unordered_set<std::string_view> made;
    for_each_entry(kVerbs, [&](std::string_view verb) { made.insert(verb); });
    return made;
  }();
  for (const std::string_view verb : kVerbsInText)
    if (prose.find(verb) != std::string_view::npos) return true;
  while (!prose.empty()) {
    const size_t end = std::min(prose.find(' '), prose.size());
    std::string_view word = prose.substr(0, end);
    while (!word.empty() && std::string_view(",;:.)\"").find(word.back()) != std::string_view::npos)
      word.remove_suffix(1);
    if (verbs.contains(word)) return true;
    prose.remove_prefix(std::min(end + 1, prose.size()));
  }
  return false;
}

/// True if the text, without closing quotes and brackets, ends with a sign that ends sentences.
bool ends_sentence(std::string_view prose) {
  static constexpr std::array<std::string_view, 17> kEnds = {".", "!", "?", "…", "。", "！", "？", "．", "।",
                                                             "॥", "؟", "۔", "։", "።",  "။",  "។",  "｡"};
  static constexpr std::array<std::string_view, 14> kClosing = {"\"", "'",  ")",  "]",  "”",  "’", "»",
                                                                "›",  "」", "』", "）", "》", "“", "】"};
  bool closed = true;
  while (closed) {
    closed = false;
    for (const std::string_view sign : kClosing) {
      if (!prose.ends_with(sign)) continue;
      prose.remove_suffix(sign.size());
      closed = true;
    }
  }
  return std::ranges::any_of(kEnds, [&](std::string_view end) { return prose.ends_with(end); });
}

size_t count_words(std::string_view prose) { return static_cast<size_t>(std::ranges::count(prose, ' ')) + 1; }

/// Share of the words that do not begin with a capital, of the words of letters: 0 to 1. It is about 0.3 for titles and
/// names, and 0.6 (German) to 0.9 for sentences. Letters of scripts without capitals count as small.
double running_words(std::string_view prose) {
  size_t running = 0, all = 0;
  while (!prose.empty()) {
    std::string_view word = prose.substr(0, prose.find(' '));
    prose.remove_prefix(std::min(word.size() + 1, prose.size()));
    while (!word.empty()) {
      const DecodedUtf8 decoded = decode_utf8(word);
      word.remove_prefix(static_cast<size_t>(decoded.bytes));
      const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(decoded.value));
      const bool capital = category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LT;
      const bool letter = capital || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LO;
      all += letter;
      running += letter && !capital;
      // Signs before a word, as in "(the", belong to it. A number is no word.
      if (letter || category == UTF8PROC_CATEGORY_ND) break;
    }
  }
  return all == 0 ? 0 : static_cast<double>(running) / static_cast<double>(all);
}

/// True if prose, the text of a line of a list, reads as a sentence or a clause, not as an entry. It does in two cases:
/// - It ends as a sentence, and has six words, or three with a frequent verb.
/// - It has many words, most of them running words, and either a frequent verb of a large language, or a small
///   letter at its beginning, as a part of a sentence has.
/// With `strict` most words have to be running words in the first case too.
bool is_sentence(std::string_view prose, bool strict) {
  constexpr size_t kFewestWords = 6, kFewestIdeographs = 12;
  constexpr size_t kFewestWordsWithVerb = 3;
  constexpr size_t kFewestWordsOpen = 10, kFewestIdeographsOpen = 20;  // without a sign at the end
  constexpr double kRunning = 0.5;
  // Lead bytes of East Asian scripts, which have no spaces.
  const auto ideographs =
      static_cast<size_t>(std::ranges::count_if(prose, [](char c) { return c >= '\xE3' && c <= '\xE9'; }));
  const size_t words = count_words(prose);
  const auto runs = [&] { return running_words(prose) >= kRunning; };
  if (ends_sentence(prose)) {
    if (words >= kFewestWords || ideographs >= kFewestIdeographs) return !strict || runs();
    return words >= kFewestWordsWithVerb && has_verb(prose) && runs();
  }
  if (words < kFewestWordsOpen && ideographs < kFewestIdeographsOpen) return false;
  const bool is_part = is_ascii_letter(prose.front()) && prose.front() == ascii_lower(prose.front());
  return (is_part || has_verb(prose)) && runs();
}

/// True if prose is one or two words without an end, such as a heading in bold letters or the name under a picture. In
/// scripts without spaces nothing is.
bool is_fragment(std::string_view prose) {
  constexpr size_t kFewestWords = 3;
  // UTF-8 of U+0800 and above: scripts of Asia.
  const bool spaced = std::ranges::none_of(prose, [](char c) { return static_cast<uint8_t>(c) >= 0xE0; });
  return spaced && count_words(prose) < kFewestWords && !ends_sentence(prose);
}

bool is_nothing(char c) { return is_blank(c) || c == kSeparator || c == kCitation; }

/// True if UTF-8 that begins with `lead` is of a script without spaces between words: U+3000 to U+9FFF, U+F000 to U+FFFF.
bool is_east_asian(char lead) { return (lead >= '\xE3' && lead <= '\xE9') || lead == '\xEF'; }

bool is_space_or_quote(char c) { return is_blank(c) || c == kSeparator || c == '\'' || c == '"'; }

/// True if text begins as a list of authors does: "Smith, J.", "J. Smith".
bool begins_with_author(std::string_view entry) {
  const size_t end = std::min(entry.find(' '), entry.size());
  const bool initial = end == 2 && entry[1] == '.' && entry[0] >= 'A' && entry[0] <= 'Z';
  const bool surname = end > 1 && entry[end - 1] == ',';
  return initial || surname;
}

/// True if the list entry is about a book or a page: "Smith, J. (1999). Title. ISBN ..."
bool is_source(std::string_view entry) {
  for (const std::string_view word : {"ISBN", "ISSN", "doi:", "OCLC"})
    if (entry.find(word) != kNone) return true;
  constexpr size_t kPagesWithin = 40;  // bytes of the end: pages are the last that a source has
  const std::string_view end = entry.substr(entry.size() - std::min(entry.size(), kPagesWithin));
  for (const std::string_view mark : {"pp. ", " p. ", "Vol. "}) {
    const size_t at = end.find(mark);
    if (at != kNone && at + mark.size() < end.size() && is_ascii_digit(end[at + mark.size()])) return true;
  }
  if (!begins_with_author(entry)) return false;
  if (entry.find("et al.") != kNone) return true;
  constexpr size_t kYearWithin = 200;  // bytes: names of authors come before the year
  const std::string_view begin = entry.substr(0, kYearWithin);
  for (size_t at = 0; (at = begin.find('(', at)) != kNone; ++at) {
    const std::string_view year = begin.substr(at + 1, 6);
    const bool is_year = year.size() == 6 && std::all_of(year.begin(), year.begin() + 4, is_ascii_digit) &&
                         year[4] == ')' && (year[5] == '.' || year[5] == ',' || year[5] == ':');
    if (is_year) return true;
  }
  return false;
}

/// True if the list entry is a link or the template of a source, with remarks: "[http://x.org Site] in English." A
/// sentence goes on in small letters: "[http://x.org Site] is a catalogue of old books."
bool begins_with_source(std::string_view entry) {
  while (!entry.empty() && is_space_or_quote(entry.front())) entry.remove_prefix(1);
  if (!entry.starts_with(kCitation)) return false;
  const size_t label_end = entry.find(kCitation, 1);
  entry.remove_prefix(label_end == kNone ? 1 : label_end + 1);
  while (!entry.empty() && is_space_or_quote(entry.front())) entry.remove_prefix(1);
  constexpr auto kFewestWords = 4;
  const std::string rest = clean_prose(entry);
  return std::ranges::count(rest, ' ') + 1 < kFewestWords ||
         running_words(std::string_view(rest).substr(0, rest.find(' '))) == 0;
}

struct QuoteRun {
  size_t begin = 0, count = 0;
  size_t kept = 0;  // of its signs, as apostrophes
};

/// The runs of two and more quotes in `line`.
std::vector<QuoteRun> quote_runs(std::string_view line) {
  std::vector<QuoteRun> runs;
  for (size_t at = line.find("''"); at != kNone; at = line.find("''", at)) {
    const bool is_text = at > 0 && line[at - 1] == kProtected;
    const size_t count = std::min(line.find_first_not_of('\'', at), line.size()) - at;
    if (!is_text) runs.push_back({at, count, count == 4 ? size_t{1} : count > 5 ? count - 5 : 0});
    at += count;
  }
  return runs;
}

/// The run of three that MediaWiki reads as an apostrophe and two, where bold and italics are both unbalanced: the first
/// after a word of one letter, else after a longer word, else after a space.
QuoteRun* apostrophe_run(std::string_view line, std::vector<QuoteRun>& runs) {
  size_t bold = 0, italic = 0;
  for (const QuoteRun& run : runs) {
    const size_t signs = run.count - run.kept;
    bold += signs != 2;
    italic += signs != 3;
  }
  if (bold % 2 == 0 || italic % 2 == 0) return nullptr;
  QuoteRun *after_letter = nullptr, *after_word = nullptr, *after_space = nullptr;
  for (QuoteRun& run : runs) {
    if (run.count - run.kept != 3) continue;
    const size_t end = run.begin + run.kept;
    const char last = end > 0 ? line[end - 1] : ' ', before = end > 1 ? line[end - 2] : ' ';
    QuoteRun*& place = last == ' ' ? after_space : before == ' ' ? after_letter : after_word;
    if (place == nullptr) place = &run;
  }
  return after_letter != nullptr ? after_letter : after_word != nullptr ? after_word : after_space;
}

/// True if the first character behind blanks is one of a word.
bool begins_with_word(std::string_view line) {
  const size_t first = line.find_first_not_of(" \t");
  return first != kNone &&
         (is_ascii_letter(line[first]) || is_ascii_digit(line[first]) || static_cast<uint8_t>(line[first]) >= 0x80);
}

/// Makes paragraphs of lines.
class LineReader {
 public:
  void add(std::string_view line) {
    while (!line.empty() && is_nothing(line.back())) line.remove_suffix(1);
    const bool begins_line = line.empty() || line.front() != kSeparator;
    while (!line.empty() && (line.front() == kSeparator || line.front() == kCitation)) line.remove_prefix(1);
    if (std::ranges::all_of(line, is_nothing)) return end_paragraph();
    switch (line.front()) {
      case '=':
        if (line.size() > 2 && line.back() == '=') return heading(line);
        return prose(line);
      case '|':
        return end_paragraph();
      case '{':
        if (line.starts_with("{|")) return end_paragraph();
        return prose(line);
      case '*':
      case '#':
      case ':':
      case '!':
        return entry(line);
      case ' ':
      case '\t':
        if (begins_line || !begins_with_word(line)) return entry(line);
        end_paragraph();  // as behind a picture
        return prose(line);
      case ';':
        return begins_line ? entry(line) : prose(line);
      case '-':
        return line.starts_with("----") ? rule(line) : prose(line);
      default:
        return prose(line);
    }
  }

  std::string finish() {
    end_paragraph();
    return std::move(out_);
  }

 private:
  /// "----" is a horizontal rule. Text may follow it.
  void rule(std::string_view line) {
    end_paragraph();
    line.remove_prefix(std::min(line.find_first_not_of('-'), line.size()));
    prose(line);
  }

  void prose(std::string_view line) {
    std::string plain;
    append_without_quotes(line, plain);
    if (plain.empty()) return;
    lead_in_.clear();
    bold_ = paragraph_.empty() && line.starts_with("'''") && line.ends_with("'''");
    if (!paragraph_.empty() && !(is_east_asian(plain.front()) && ends_east_asian())) paragraph_ += ' ';
    paragraph_ += plain;
  }

  [[nodiscard]] bool ends_east_asian() const {
    size_t lead = paragraph_.size() - 1;
    while (lead > 0 && (is_nothing(paragraph_[lead]) || (static_cast<uint8_t>(paragraph_[lead]) & 0xC0) == 0x80))
      --lead;
    return is_east_asian(paragraph_[lead]);
  }

  /// Ends a paragraph. One or two words are left over from layout, unless they lead to the next line.
  void end_paragraph() {
    if (paragraph_.empty()) return;
    std::string text = clean_prose(paragraph_);
    paragraph_.clear();
    if (!is_fragment(text)) {
      emit(text);
    } else if (!bold_) {
      lead_in_ = std::move(text);
    }
  }

  void emit(const std::string& text) {
    if (!text.empty()) (out_ += text) += '\n';
  }

  void heading(std::string_view line) {
    end_paragraph();
    lead_in_.clear();
    const size_t level = std::min(line.find_first_not_of('='), line.size() - 1);
    if (section_ != SectionKind::kText && level > section_level_) return;  // a part of the section
    const std::string_view name = line.substr(level, line.size() - level);
    section_ = section_kind(trim(name.substr(0, name.find_last_not_of('=') + 1)));
    section_level_ = level;
  }

  /// A line of a list, an indented or preformatted one: sentences stay, entries go.
  void entry(std::string_view line) {
    end_paragraph();
    const bool indented = line.front() == ':';
    line.remove_prefix(std::min(line.find_first_not_of("*#:;! \t"), line.size()));
    std::string text;
    if (section_ != SectionKind::kSources && !begins_with_source(line)) {
      std::string plain;
      append_without_quotes(line, plain);
      text = clean_prose(plain);
      const bool strict = section_ == SectionKind::kWorks || line.find(kCitation) != kNone;
      if (!is_sentence(text, strict) || is_source(text)) text.clear();
    }
    // "Thus" before a formula, and "For example:" before a list of sentences.
    if (!text.empty() || (indented && section_ == SectionKind::kText)) emit(std::exchange(lead_in_, {}));
    emit(text);
  }

  std::string out_, paragraph_;
  bool bold_ = false;    // the paragraph is one line in bold letters, as headings are written
  std::string lead_in_;  // one or two words before a line of a list
  SectionKind section_ = SectionKind::kText;
  size_t section_level_ = 0;  // of its heading
};

}  // namespace

void append_without_quotes(std::string_view line, std::string& out) {
  std::vector<QuoteRun> runs = quote_runs(line);
  if (QuoteRun* run = apostrophe_run(line, runs)) ++run->kept;
  size_t at = 0;
  for (const QuoteRun& run : runs) {
    out += line.substr(at, run.begin - at);
    // An apostrophe that stays is text, whatever stands beside it when the markup is gone.
    for (size_t i = 0; i < run.kept; ++i) (out += kProtected) += '\'';
    at = run.begin + run.count;
  }
  out += line.substr(at);
}

std::string prose_of_lines(std::string_view lines) {
  LineReader reader;
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    reader.add(lines.substr(0, end));
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  return reader.finish();
}

}  // namespace bert
