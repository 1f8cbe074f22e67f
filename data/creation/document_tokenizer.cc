#include "data/creation/document_tokenizer.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <string_view>
#include <thread>

#include "data/text/sentence_splitter.h"

namespace bert {
namespace {

constexpr size_t kBlockBytes = size_t{16} << 20;  // bytes of text that the threads tokenize at a time
constexpr size_t kBytesOfToken = 2;               // of text at least, as a rule: what is reserved, not what is used

}  // namespace

void CorpusStatistics::add(const CorpusStatistics& more) {
  bytes += more.bytes;
  documents += more.documents;
  sentences += more.sentences;
  tokens += more.tokens;
  unknown_tokens += more.unknown_tokens;
  empty_documents += more.empty_documents;
}

TokenizedDocument tokenize_document(const std::string& text, const Tokenizer& tokenizer, bool prose) {
  TokenizedDocument document;
  const auto add = [&](std::string_view sentence) {
    const size_t before = document.ids.size();
    tokenizer.encode(sentence, document.ids);
    if (document.ids.size() > before) document.sentence_ends.push_back(document.ids.size());
  };
  if (prose) {
    split_document(text, add);
  } else {
    for (std::string_view rest = text; !rest.empty();) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      add(line);
    }
  }
  return document;
}

CorpusStatistics statistics_of(const TokenizedDocument& document, int32_t unk_id) {
  return {.bytes = 0,
          .documents = document.size() > 0,
          .sentences = static_cast<int64_t>(document.size()),
          .tokens = static_cast<int64_t>(document.ids.size()),
          .unknown_tokens = std::count(document.ids.begin(), document.ids.end(), unk_id),
          .empty_documents = document.size() == 0};
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
  const bool prose = options.reader.layout != Layout::kSentences;
  std::vector<std::string> texts;
  std::vector<TokenizedDocument> block;
  size_t block_bytes = 0;
  const auto flush = [&] {
    block.assign(texts.size(), {});
    for_each_in_parallel(texts.size(), options.num_threads,
                         [&](size_t i) { block[i] = tokenize_document(texts[i], tokenizer, prose); });
    for (const TokenizedDocument& document : block) {
      corpus.documents.add(document);
      corpus.statistics.add(statistics_of(document, tokenizer.vocabulary().unk_id()));
    }
    texts.clear();
    block_bytes = 0;
    if (options.progress) options.progress(reader.statistics().stored_bytes, reader.stored_bytes());
  };
  for (std::string text; reader.next(text);) {
    block_bytes += text.size();
    texts.push_back(std::move(text));
    if (block_bytes >= kBlockBytes) flush();
  }
  flush();
  if (corpus.documents.size() == 0) reader.throw_no_text();
  corpus.read = reader.statistics();
  corpus.statistics.bytes = corpus.read.text_bytes;
  return corpus;
}

}  // namespace bert
