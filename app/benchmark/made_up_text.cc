#include "app/benchmark/made_up_text.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

namespace bert {
namespace {

constexpr std::string_view kOnsets = "bcdfghklmnprstvw", kVowels = "aeiou", kCodas = "lmnrst";
constexpr int64_t kSyllables = static_cast<int64_t>(kOnsets.size() * kVowels.size() * kCodas.size());
constexpr int64_t kWords = 80'000;       // different words
constexpr int64_t kWholeWords = 29'500;  // of the vocabulary; 9 words of 100 in the text are not among them

std::string syllable(int64_t number) {
  const auto at = [&](std::string_view letters, int64_t divisor) {
    return letters[static_cast<size_t>(number / divisor) % letters.size()];
  };
  return {at(kOnsets, 1), at(kVowels, std::ssize(kOnsets)), at(kCodas, std::ssize(kOnsets) * std::ssize(kVowels))};
}

/// The word of a rank from 0: the most frequent words have one syllable, the others two.
std::string word_of_rank(int64_t rank) {
  if (rank < kSyllables) return syllable(rank);
  rank -= kSyllables;
  return fmt::format("{}{}", syllable(rank / kSyllables), syllable(rank % kSyllables));
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else if (c == '&') {
      result += "&amp;";
    } else {
      result += c;
    }
  }
  return result;
}

std::string capitalised(std::string text) {
  text.front() = static_cast<char>(text.front() - 'a' + 'A');
  return text;
}

}  // namespace

std::string MadeUpText::word() {
  return word_of_rank(static_cast<int64_t>(std::pow(static_cast<double>(kWords), random_.random())) - 1);
}

std::string MadeUpText::words(int64_t count) {
  std::string text = word();
  for (int64_t i = 1; i < count; ++i) text.append(1, ' ').append(word());
  return text;
}

std::string MadeUpText::sentence(bool markup) {
  std::string text = capitalised(word());
  for (int64_t left = random_.randint(5, 30); left > 0; --left) {
    constexpr double kComma = 0.08, kNumber = 0.1, kLink = 0.18;  // cumulative shares of the words
    const double kind = random_.random();
    if (kind < kComma) {
      text.append(", ").append(word());
    } else if (kind < kNumber) {
      text += fmt::format(" {}", random_.randint(1, 2026));
    } else if (markup && kind < kLink) {
      text += random_.random() < 0.5 ? fmt::format(" [[{}]]", words(2)) : fmt::format(" [[{}|{}]]", words(2), word());
    } else {
      text.append(1, ' ').append(word());
    }
  }
  return text;
}

std::string MadeUpText::document() {
  std::string text;
  for (int64_t paragraph = random_.randint(4, 20); paragraph > 0; --paragraph) {
    for (int64_t left = random_.randint(3, 8); left > 0; --left) {
      text += sentence(/*markup=*/false);
      text += left > 1 ? ". " : ".\n";
    }
  }
  return text;
}

std::string MadeUpText::article() {
  std::string text = fmt::format(
      "{{{{Infobox {}\n| name = {}\n| area = {{{{convert|{}|km2}}}}\n| website = {{{{URL|example.org/{}}}}}\n}}}}\n'''",
      word(), words(2), random_.randint(1, 999), word());
  text += fmt::format("{}''' ", words(2));
  for (int64_t section = random_.randint(1, 6); section > 0; --section) {
    for (int64_t paragraph = random_.randint(1, 5); paragraph > 0; --paragraph) {
      for (int64_t left = random_.randint(2, 7); left > 0; --left) {
        text += sentence(/*markup=*/true);
        text += '.';
        if (random_.random() < 0.4) {
          text += fmt::format(
              "<ref name=\"{0}\">{{{{cite web |url=https://example.org/{0}/{1} |title={2} |access-date=3 May "
              "2026}}}}</ref>",
              word(), word(), words(6));
        }
        text += left > 1 ? " " : "\n\n";
      }
    }
    if (random_.random() < 0.3) {
      for (int64_t item = random_.randint(2, 6); item > 0; --item)
        text += fmt::format("* {}\n", sentence(/*markup=*/true));
    }
    if (random_.random() < 0.2) {
      text += fmt::format("{{| class=\"wikitext\"\n! {} !! {}\n", word(), word());
      for (int64_t row = random_.randint(2, 10); row > 0; --row)
        text += fmt::format("|-\n| {} || {}\n", words(2), word());
      text += "|}\n";
    }
    text += fmt::format("== {} ==\n", capitalised(words(2)));
  }
  text += fmt::format("{{{{reflist}}}}\n[[Category:{}]]\n", words(2));
  return text;
}

std::string MadeUpText::dump_begin() {
  return "<mediawiki xmlns=\"http://www.mediawiki.org/xml/export-0.11/\" xml:lang=\"en\">\n<siteinfo><namespaces>"
         "<namespace key=\"0\" /><namespace key=\"1\">Talk</namespace></namespaces></siteinfo>\n";
}

std::string MadeUpText::dump_page() {
  constexpr int64_t kRedirects = 4, kTalks = 10;  // every 4th page is a redirect, every 10th a discussion
  const int64_t number = ++pages_;
  const bool redirect = number % kRedirects == 0, talk = number % kTalks == 1;
  const std::string title = fmt::format("{} {}", capitalised(words(2)), number);
  return fmt::format(
      "<page><title>{}{}</title><ns>{}</ns><id>{}</id>{}<revision><id>{}</id><model>wikitext</model><text>{}</text></"
      "revision>"
      "</page>\n",
      talk ? "Talk:" : "", title, talk ? 1 : 0, number, redirect ? "<redirect title=\"A\" />" : "", number,
      redirect ? "#REDIRECT [[A]]" : escaped(article()));
}

std::vector<std::string> MadeUpText::vocabulary() {
  std::vector<std::string> tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (const char* marks = "!\"#$%&'()*+,-./:;<=>?@[]_{|}~"; *marks != '\0'; ++marks) tokens.emplace_back(1, *marks);
  for (const char* prefix : {"", "##"}) {
    for (char c = 'a'; c <= 'z'; ++c) tokens.push_back(fmt::format("{}{}", prefix, c));
    for (char c = '0'; c <= '9'; ++c) tokens.push_back(fmt::format("{}{}", prefix, c));
  }
  for (int64_t i = 0; i < kSyllables; ++i) tokens.push_back(fmt::format("##{}", syllable(i)));
  for (int64_t i = 0; i < kWholeWords; ++i) tokens.push_back(word_of_rank(i));
  return tokens;
}

}  // namespace bert
