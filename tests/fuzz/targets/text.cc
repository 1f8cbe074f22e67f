// Text files as `bert data create` reads them: sentences a line, and prose.
#include "data/creation/document_tokenizer.h"
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
  for (const Layout layout : {Layout::kSentences, Layout::kProse}) {
    const Corpus corpus =
        read_documents({file.path()}, tokenizer, {.reader = {.layout = layout}, .num_threads = 1, .progress = {}});
    const TokenizedDocuments& documents = corpus.documents;
    require(corpus.statistics.documents == static_cast<int64_t>(documents.size()), "documents are miscounted");
    for (size_t i = 0; i < documents.size(); ++i)
      require(documents.first_sentence(i) < documents.first_sentence(i + 1), "a document is empty");
    require(static_cast<int64_t>(documents.tokens()) == corpus.statistics.tokens, "tokens are miscounted");
    require(static_cast<int64_t>(documents.first_sentence(documents.size())) == corpus.statistics.sentences,
            "sentences are miscounted");
  }
}

}  // namespace

FuzzTarget text_target() { return {"text", seeds(), read}; }

}  // namespace bert::testing
