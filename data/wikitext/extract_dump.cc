#include "data/wikitext/extract_dump.h"

#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "data/corpus/decompression.h"
#include "data/io/error.h"
#include "data/wikitext/bzip2_reader.h"
#include "data/wikitext/dump_pages.h"
#include "data/wikitext/wikitext.h"
#include "data/wikitext/worker_pool.h"

namespace bert {
namespace {

/// Wikitext that one task converts: enough that tasks are few, and small next to memory.
constexpr size_t kBatchBytes = size_t{256} << 10;
/// Batches that are converted or wait for it, for each thread.
constexpr size_t kBatchesAhead = 4;

/// The unpacked bytes of a dump's file: bzip2 by all threads of the pool, other formats by one.
class DumpBytes {
 public:
  DumpBytes(const std::string& path, WorkerPool& pool) : file_(path) {
    if (file_.beginning().starts_with("BZh")) {
      bzip2_.emplace(
          path, [this](char* to, size_t bytes) { return read_fully(file_, to, bytes); }, pool);
    } else {
      other_ = unpacked(file_);
    }
  }

  /// The next bytes, or nothing at the end. Throws IoError, and DataError with the place in the file.
  std::optional<std::string> next() {
    if (bzip2_) return bzip2_->next();
    constexpr size_t kPiece = size_t{1} << 20;
    std::string piece(kPiece, '\0');
    piece.resize(read_fully(*other_, piece.data(), piece.size()));
    return piece.empty() ? std::nullopt : std::optional(std::move(piece));
  }

  [[nodiscard]] int64_t bytes_read() const { return file_.offset(); }

 private:
  static size_t read_fully(ByteStream& stream, char* to, size_t bytes) {
    size_t got = 0;
    while (got < bytes) {
      const size_t count = stream.read(to + got, bytes - got);
      if (count == 0) break;
      got += count;
    }
    return got;
  }

  StoredFile file_;
  std::optional<Bzip2Reader> bzip2_;
  std::unique_ptr<ByteStream> other_;
};

struct Article {
  std::string title, text;
};
using Batch = std::vector<Article>;

/// Converts articles in the background and delivers them in order.
class Converter {
 public:
  Converter(WorkerPool& pool, const ArticleReceiver& receive) : pool_(pool), receive_(receive) {}

  void add(Article article, const WikiNamespaces& namespaces) {
    // <siteinfo> comes before the pages, so the first article sees all names.
    if (!namespaces_) namespaces_ = std::make_shared<const WikiNamespaces>(namespaces);
    bytes_ += article.text.size();
    batch_.push_back(std::move(article));
    if (bytes_ >= kBatchBytes) submit();
  }

  void finish() {
    submit();
    while (!batches_.empty()) deliver();
  }

 private:
  void submit() {
    if (batch_.empty()) return;
    batches_.push_back(pool_.submit([batch = std::move(batch_), namespaces = namespaces_]() mutable {
      for (Article& article : batch) article.text = wikitext_to_prose(article.text, article.title, *namespaces);
      return std::move(batch);
    }));
    batch_.clear();
    bytes_ = 0;
    if (batches_.size() > kBatchesAhead * static_cast<size_t>(pool_.num_threads())) deliver();
  }

  void deliver() {
    const Batch batch = pool_.wait(batches_.front());
    batches_.pop_front();
    for (const Article& article : batch) receive_(article.title, article.text);
  }

  WorkerPool& pool_;
  const ArticleReceiver& receive_;
  std::shared_ptr<const WikiNamespaces> namespaces_;
  Batch batch_;
  size_t bytes_ = 0;
  std::deque<std::future<Batch>> batches_;
};

}  // namespace

DumpCounts extract_dump(const std::string& path, const DumpOptions& options, const ArticleReceiver& receive) {
  DumpCounts counts;
  WorkerPool pool(options.num_threads);
  DumpBytes bytes(path, pool);
  Converter converter(pool, receive);
  std::unique_ptr<DumpPages> pages;
  pages = std::make_unique<DumpPages>(path, [&](DumpPage page) {
    ++counts.pages;
    if (page.name_space != WikiNamespaces::kArticle) {
      ++counts.other_namespaces;
    } else if (page.redirect) {
      ++counts.redirects;
    } else if (page.model != "wikitext") {
      ++counts.other_models;
    } else {
      ++counts.articles;
      converter.add({std::move(page.title), std::move(page.text)}, pages->namespaces());
    }
  });
  std::exception_ptr damage;
  try {
    while (const auto chunk = bytes.next()) {
      counts.xml_bytes += static_cast<int64_t>(chunk->size());
      pages->parse(*chunk);
      if (options.progress) options.progress(bytes.bytes_read());
    }
    pages->finish();
  } catch (const DataError&) {
    damage = std::current_exception();
  }
  converter.finish();
  if (damage) std::rethrow_exception(damage);
  return counts;
}

}  // namespace bert
