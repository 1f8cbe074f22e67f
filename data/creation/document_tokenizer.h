// Text of documents to ids, in parallel.
#pragma once

#include <cstdint>
#include <functional>
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
  void add(const CorpusStatistics& more);
};

/// Tokenizes a document. Its sentences are its lines, or with `prose` those of split_document(). Sentences without a
/// token are left out.
TokenizedDocument tokenize_document(const std::string& text, const Tokenizer& tokenizer, bool prose);

/// The counts of one document, but its bytes.
CorpusStatistics statistics_of(const TokenizedDocument& document, int32_t unk_id);

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
  std::function<void(int64_t bytes, int64_t of_bytes)> progress;  // of the files as stored; may be empty
};

/// Reads and tokenizes all documents. Throws what DocumentReader throws, and DataError if there is no text.
Corpus read_documents(const std::vector<std::string>& paths, const Tokenizer& tokenizer, const ReadOptions& options);

}  // namespace bert
