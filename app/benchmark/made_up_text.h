// Text for benchmarks that have none: made-up words, as frequent as those of a language, without meaning.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/random/counter_random.h"

namespace bert {

/// Writes documents one after another, which follow from the seed (with one compiler). A word's frequency is
/// inverse to its rank (Zipf's law).
class MadeUpText {
 public:
  explicit MadeUpText(uint64_t seed) : random_(seed) {}

  /// A document of prose: paragraphs of a line each.
  std::string document();
  /// A page of a MediaWiki dump, as XML: most are articles with templates, references, links, lists and tables, some are
  /// redirects and talk pages.
  std::string dump_page();

  /// The text before and after the pages of a dump.
  static std::string dump_begin();
  static std::string dump_end() { return "</mediawiki>\n"; }

  /// A WordPiece vocabulary of about 30,000 tokens, as large as BERT's: the frequent words, and pieces of the others.
  static std::vector<std::string> vocabulary();

 private:
  std::string word();
  std::string words(int64_t count);
  /// A sentence without its full stop; with `markup` some words are links.
  std::string sentence(bool markup);
  std::string article();

  CounterRandom random_;
  int64_t pages_ = 0;
};

}  // namespace bert
