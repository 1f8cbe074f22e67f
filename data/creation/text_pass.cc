#include "data/creation/text_pass.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <future>
#include <mutex>
#include <string>

#include "data/creation/chunk_file.h"
#include "data/creation/dealer.h"
#include "data/creation/document_tokenizer.h"

namespace bert {
namespace {

/// The documents of a chunk, with the targets that they were dealt to.
struct Chunk {
  size_t number = 0;
  std::vector<std::string> texts;  // empty if the chunk is not made here
  std::vector<EncodedDocument> documents;
  std::vector<uint32_t> targets;
  CorpusStatistics statistics;
};

class ChunkMaking {
 public:
  explicit ChunkMaking(const TextPass& pass)
      : pass_(pass), reader_(pass.options.input, pass.options.reader), dealer_(pass.plan.deal) {}

  TextRead run() {
    tell();
    const std::launch how = pass_.overlap ? std::launch::async : std::launch::deferred;
    size_t number = 0;
    std::future<Chunk> ahead = std::async(how, [&] { return next(0); });
    std::future<void> writing;
    while (true) {
      Chunk chunk = ahead.get();
      if (chunk.targets.empty()) break;
      ++number;
      ahead = std::async(how, [&, number] { return next(number); });
      if (!chunk.texts.empty()) {
        tokenize(chunk);
        if (writing.valid()) writing.get();
        writing = std::async(how, [this, made = std::move(chunk)] { write(made); });
        if (!pass_.overlap) writing.get();
      }
      tell();
    }
    if (writing.valid()) writing.get();
    if (reader_.statistics().documents == 0) reader_.throw_no_text();
    return {.chunks = number,
            .read = reader_.statistics(),
            .text_bytes = dealer_.text_bytes(),
            .documents = dealer_.documents()};
  }

 private:
  /// Reads and deals a chunk. Its texts are kept only if this process makes it.
  Chunk next(size_t number) {
    Chunk chunk{.number = number, .texts = {}, .documents = {}, .targets = {}, .statistics = {}};
    const bool wanted = is_mine(pass_.options, number) && !std::filesystem::exists(pass_.work.chunk(number)) &&
                        pass_.work.try_lock_chunk(number);
    std::vector<int64_t> sizes;
    int64_t memory = 0;
    for (std::string text; memory < pass_.options.chunk_bytes && reader_.next(text);) {
      sizes.push_back(static_cast<int64_t>(text.size()));
      chunk.statistics.bytes += sizes.back();
      memory += sizes.back() + kDocumentBytes;
      if (wanted) chunk.texts.push_back(text);  // without the room that `text` has to grow
    }
    chunk.targets = dealer_.deal(sizes);
    read_bytes_ = reader_.statistics().stored_bytes;
    return chunk;
  }

  void tokenize(Chunk& chunk) const {
    chunk.documents.resize(chunk.texts.size());
    std::mutex mutex;
    // A thread takes a run of documents at a time, so that it seldom waits for the counts of another.
    constexpr size_t kDocumentsAtOnce = 16;
    const size_t runs = (chunk.texts.size() + kDocumentsAtOnce - 1) / kDocumentsAtOnce;
    for_each_in_parallel(runs, pass_.options.num_threads, [&](size_t run) {
      CorpusStatistics counts;
      const size_t end = std::min(chunk.texts.size(), (run + 1) * kDocumentsAtOnce);
      for (size_t i = run * kDocumentsAtOnce; i < end; ++i) {
        chunk.documents[i] = encode_document(chunk.texts[i], pass_.tokenizer, pass_.options.reader, counts);
        chunk.texts[i] = {};
      }
      const std::lock_guard lock(mutex);
      chunk.statistics.add(counts);
    });
  }

  void write(const Chunk& chunk) const {
    write_chunk(pass_.work.chunk(chunk.number), chunk.documents, chunk.targets, pass_.plan.targets(),
                pass_.tokenizer.vocabulary().size(), chunk.statistics);
    pass_.reached(CreationStep::kChunk);
    pass_.work.unlock_chunk(chunk.number);
  }

  void tell() const {
    pass_.progress(static_cast<double>(read_bytes_) / 1e6, static_cast<double>(reader_.stored_bytes()) / 1e6);
  }

  const TextPass& pass_;
  DocumentReader reader_;
  Dealer dealer_;
  std::atomic<int64_t> read_bytes_ = 0;
};

}  // namespace

TextRead read_into_chunks(const TextPass& pass) { return ChunkMaking(pass).run(); }

}  // namespace bert
