// Text files as `bert data create` reads them: sentences a line, and prose.
#include "data/examples/pretraining_data.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/fuzz/targets/fuzz_targets.h"
#include "tests/support/small_vocabulary.h"

namespace bert::testing {
namespace {

std::vector<std::string> seeds() {
  return {"\xef\xbb\xbfThe unaffable cat.\r\nSat on it.\r\n\r\nAnother one.\n",
          "One.\n\n\n\nTwo. Three!\n  Four\nfive",
          "BZh91AY&SY",
          std::string("\xff\xfeT\0h\0", 6),
          "\x1f\x8b\x08",
          "\xe9t\xe9 \xff\xff"};
}

void read(std::string_view input) {
  static const WordPieceTokenizer tokenizer(small_vocabulary());
  const MemoryFile file(input);
  for (const bool split : {false, true}) {
    const Corpus corpus =
        read_documents({file.path()}, tokenizer, {.split_sentences = split, .num_threads = 1, .progress = {}});
    require(corpus.statistics.documents == static_cast<int64_t>(corpus.documents.size()), "documents are miscounted");
    int64_t tokens = 0, sentences = 0;
    for (const TokenizedDocument& document : corpus.documents) {
      require(document.size() > 0, "a document is empty");
      sentences += static_cast<int64_t>(document.size());
      tokens += static_cast<int64_t>(document.ids.size());
    }
    require(tokens == corpus.statistics.tokens, "tokens are miscounted");
    require(sentences == corpus.statistics.sentences, "sentences are miscounted");
  }
}

}  // namespace

FuzzTarget text_target() { return {"text", seeds(), read}; }

}  // namespace bert::testing
