#include "data/wikitext/prose_sentences.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <unordered_set>

#include "data/text/unicode.h"
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

}  // namespace

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

bool is_fragment(std::string_view prose) {
  constexpr size_t kFewestWords = 3;
  // UTF-8 of U+0800 and above: scripts of Asia.
  const bool spaced = std::ranges::none_of(prose, [](char c) { return static_cast<uint8_t>(c) >= 0xE0; });
  return spaced && count_words(prose) < kFewestWords && !ends_sentence(prose);
}

}  // namespace bert
