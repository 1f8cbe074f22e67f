#include "data/creation/document_tokenizer.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <string_view>
#include <thread>

#include "data/io/text_parts.h"
#include "data/text/sentence_splitter.h"

namespace bert {
namespace {

constexpr int64_t kBlockBytes = int64_t{16} << 20;  // of text with kDocumentBytes that the threads tokenize at a time
constexpr size_t kBytesOfToken = 2;                 // of text at least, as a rule: what is reserved, not what is used

/// The counts of one document, but its bytes.
CorpusStatistics statistics_of(const TokenizedDocument& document, int32_t unk_id) {
  return {.bytes = 0,
          .documents = document.size() > 0,
          .sentences = static_cast<int64_t>(document.size()),
          .tokens = static_cast<int64_t>(document.ids.size()),
          .unknown_tokens = std::ranges::count(document.ids, unk_id),
          .empty_documents = document.size() == 0};
}

}  // namespace

void CorpusStatistics::add(const CorpusStatistics& more) {
  bytes += more.bytes;
  documents += more.documents;
  sentences += more.sentences;
  tokens += more.tokens;
  unknown_tokens += more.unknown_tokens;
  empty_documents += more.empty_documents;
}

void for_each_sentence(const std::string& text, const Tokenizer& tokenizer, const ReaderOptions& reader,
                       const std::function<void(std::span<const int32_t>)>& take) {
  std::vector<int32_t> ids;
  const auto add = [&](std::string_view sentence) {
    ids.clear();
    tokenizer.encode(sentence, ids);
    if (!ids.empty()) take(ids);
  };
  if (reader.layout != Layout::kSentences) {
    split_document(text, add, reader.language);
    return;
  }
  for (std::string_view rest = text; !rest.empty();) add(take_part(rest, '\n'));
}

TokenizedDocument tokenize_document(const std::string& text, const Tokenizer& tokenizer, const ReaderOptions& reader) {
  TokenizedDocument document;
  for_each_sentence(text, tokenizer, reader, [&](std::span<const int32_t> ids) {
    document.ids.insert(document.ids.end(), ids.begin(), ids.end());
    document.sentence_ends.push_back(document.ids.size());
  });
  document.ids.shrink_to_fit();
  document.sentence_ends.shrink_to_fit();
  return document;
}

void for_each_in_parallel(size_t count, int64_t threads, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next = 0;
  std::exception_ptr error;
  std::mutex mutex;
  const auto run = [&] {
    try {
      for (size_t i; (i = next++) < count;) work(i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    const auto helpers = std::min(static_cast<size_t>(std::max<int64_t>(1, threads)), count);
    for (size_t i = 1; i < helpers; ++i) others.emplace_back(run);
    run();
  }
  if (error) std::rethrow_exception(error);
}

Corpus read_documents(const std::vector<std::string>& paths, const Tokenizer& tokenizer, const ReadOptions& options) {
  DocumentReader reader(paths, options.reader);
  Corpus corpus{TokenizedDocuments(tokenizer.vocabulary().size()), {}, {}};
  const auto expected = static_cast<size_t>(reader.stored_bytes());
  corpus.documents.reserve(expected / kBytesOfToken, expected / kBytesOfToken / 8, 0);
  std::vector<std::string> texts;
  std::vector<TokenizedDocument> block;
  int64_t block_bytes = 0;
  const auto flush = [&] {
    block.assign(texts.size(), {});
    for_each_in_parallel(texts.size(), options.num_threads,
                         [&](size_t i) { block[i] = tokenize_document(texts[i], tokenizer, options.reader); });
    for (const TokenizedDocument& document : block) {
      corpus.documents.add(document);
      corpus.statistics.add(statistics_of(document, tokenizer.vocabulary().unk_id()));
    }
    texts.clear();
    block_bytes = 0;
    corpus.statistics.bytes = reader.statistics().text_bytes;
    if (options.progress) options.progress(reader.statistics().stored_bytes, reader.stored_bytes());
    if (options.counted) options.counted(corpus.statistics);
  };
  for (std::string text; reader.next(text);) {
    block_bytes += static_cast<int64_t>(text.size()) + kDocumentBytes;
    texts.push_back(text);  // without the room that `text` has to grow
    if (block_bytes >= kBlockBytes) flush();
  }
  flush();
  if (corpus.documents.size() == 0) reader.throw_no_text();
  corpus.read = reader.statistics();
  return corpus;
}

}  // namespace bert
