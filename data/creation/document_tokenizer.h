// Text of documents to ids, in parallel.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/corpus/document_reader.h"
#include "data/examples/tokenized_documents.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

/// Counts of the text that was read.
struct CorpusStatistics {
  int64_t bytes = 0;  // of text, decompressed
  int64_t documents = 0, sentences = 0, tokens = 0;
  int64_t unknown_tokens = 0;   // [UNK]
  int64_t empty_documents = 0;  // text without a token, such as control characters; not in `documents`

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("bytes", self.bytes);
    visit("documents", self.documents);
    visit("sentences", self.sentences);
    visit("tokens", self.tokens);
    visit("unknown_tokens", self.unknown_tokens);
    visit("empty_documents", self.empty_documents);
  }
  void add(const CorpusStatistics& more);
};

/// Passes the ids of each sentence of a document to `take`. The sentences are the document's lines in Layout::kSentences,
/// else those of split_document(). Sentences without a token are left out.
void for_each_sentence(const std::string& text, const Tokenizer& tokenizer, const ReaderOptions& reader,
                       const std::function<void(std::span<const int32_t>)>& take);

/// Tokenizes a document, sentence by sentence (for_each_sentence).
TokenizedDocument tokenize_document(const std::string& text, const Tokenizer& tokenizer, const ReaderOptions& reader);

/// Memory that a document takes beside its text or its ids while it is read and tokenized with others, at most.
inline constexpr int64_t kDocumentBytes = 200;

/// Runs work(i) for 0 <= i < count on `threads` threads; each takes the next number when it has finished one. Rethrows
/// the first exception after all threads have ended.
void for_each_in_parallel(size_t count, int64_t threads, const std::function<void(size_t)>& work);

/// Documents in memory.
struct Corpus {
  TokenizedDocuments documents;
  CorpusStatistics statistics;
  ReadStatistics read;  // of the reader
};

struct ReadOptions {
  ReaderOptions reader = {.layout = Layout::kSentences};  // kSentences: one sentence a line; other layouts: prose
  int64_t num_threads = 1;                                // the result does not depend on it
  std::function<void(int64_t bytes, int64_t of_bytes)> progress = {};  // of the files as stored; may be empty
  /// Gets the counts of the text up to now, for every 16 MB of it; an exception ends the reading. May be empty.
  std::function<void(const CorpusStatistics& so_far)> counted = {};
};

/// Reads and tokenizes all documents. Throws what DocumentReader throws, and DataError if there is no text.
Corpus read_documents(const std::vector<std::string>& paths, const Tokenizer& tokenizer, const ReadOptions& options);

}  // namespace bert
