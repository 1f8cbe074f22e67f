// Boundaries of split_sentences against sentences that were labelled by hand (tests/data/sentences).
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "data/text/sentence_splitter.h"
#include "tests/places.h"
#include "tests/testing.h"

namespace bert {
namespace {

using Paragraph = std::vector<std::string>;

/// The paragraphs of a file with one sentence a line, empty lines between paragraphs, and comments after #.
std::vector<Paragraph> labelled(const std::string& name) {
  std::ifstream file(std::string(BERT_SOURCE_DIR) + "/tests/data/sentences/" + name);
  REQUIRE(file);
  std::vector<Paragraph> paragraphs(1);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    if (!line.empty()) {
      paragraphs.back().push_back(line);
    } else if (!paragraphs.back().empty()) {
      paragraphs.emplace_back();
    }
  }
  if (paragraphs.back().empty()) paragraphs.pop_back();
  return paragraphs;
}

std::string joined(const Paragraph& sentences, const std::string& separator) {
  std::string text;
  for (const std::string& sentence : sentences) text += (text.empty() ? "" : separator) + sentence;
  return text;
}

/// Boundaries between sentences, as numbers of characters that are no spaces before them. The end of the paragraph,
/// where no splitter can fail, is not one.
std::set<size_t> boundaries(const Paragraph& sentences) {
  std::set<size_t> positions;
  size_t position = 0;
  for (const std::string& sentence : sentences) {
    for (const char c : sentence) position += c != ' ';
    positions.insert(position);
  }
  positions.erase(position);
  return positions;
}

struct Score {
  size_t labelled = 0, found = 0, right = 0;
  std::string errors;
  double precision() const { return static_cast<double>(right) / static_cast<double>(found); }
  double recall() const { return static_cast<double>(right) / static_cast<double>(labelled); }
  double f1() const { return 2 * precision() * recall() / (precision() + recall()); }
};

template <typename Split>
Score score(const std::vector<Paragraph>& paragraphs, const std::string& separator, const Split& split) {
  Score result;
  for (const Paragraph& paragraph : paragraphs) {
    const Paragraph sentences = split(joined(paragraph, separator));
    const std::set<size_t> want = boundaries(paragraph), got = boundaries(sentences);
    result.labelled += want.size();
    result.found += got.size();
    for (const size_t position : got) result.right += want.count(position);
    if (want != got) result.errors += joined(sentences, " | ") + "\n";
  }
  return result;
}

Score report(const std::string& name, const std::string& separator) {
  const Score result = score(labelled(name), separator, [](const std::string& text) { return split_sentences(text); });
  std::cout << name << ": " << result.labelled << " boundaries, precision " << result.precision() << ", recall "
            << result.recall() << ", F1 " << result.f1() << "\n";
  return result;
}

TEST_CASE("Boundaries of English sentences are those that a reader labelled", "[unit][splitter]") {
  const Score english = report("english.txt", " ");
  INFO("paragraphs with an error:\n" << english.errors);
  CHECK(english.labelled >= 300);
  CHECK(english.f1() >= 0.97);
}

TEST_CASE("Boundaries of other languages are those that a reader labelled", "[unit][splitter]") {
  const Score spaced = report("other_languages.txt", " ");
  INFO("paragraphs with an error:\n" << spaced.errors);
  CHECK(spaced.f1() >= 0.97);
  const Score unspaced = report("without_spaces.txt", "");
  INFO("paragraphs with an error:\n" << unspaced.errors);
  CHECK(unspaced.f1() >= 0.97);
}

TEST_CASE("Ordinal numbers and abbreviations end sentences only where those of their language do", "[unit][splitter]") {
  const Score ordinals = report("ordinals.txt", " ");
  INFO("paragraphs with an error:\n" << ordinals.errors);
  CHECK(ordinals.labelled >= 60);
  CHECK(ordinals.errors.empty());
}

TEST_CASE("The score finds a splitter that knows no abbreviations", "[unit][splitter]") {
  const auto at_full_stops = [](const std::string& text) {
    Paragraph sentences;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find_first_of(".!?", begin), text.size() - 1) + 1;
      sentences.push_back(text.substr(begin, end - begin));
      begin = end;
    }
    return sentences;
  };
  CHECK(score(labelled("english.txt"), " ", at_full_stops).f1() < 0.8);
}

}  // namespace
}  // namespace bert
