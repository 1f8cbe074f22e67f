#include "data/wikitext/extract_dump.h"

#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "data/corpus/bzip2_reader.h"
#include "data/corpus/decompression.h"
#include "data/corpus/worker_pool.h"
#include "data/io/error.h"
#include "data/text/text_input.h"
#include "data/wikitext/dump_pages.h"
#include "data/wikitext/wikitext.h"

namespace bert {
namespace {

/// Wikitext that one task converts: enough that tasks are few, and small next to memory.
constexpr size_t kBatchBytes = size_t{256} << 10;
/// Batches that are converted or wait for it, for each thread.
constexpr size_t kBatchesAhead = 4;
/// Wikitext that is converted or waits for it, unless a single batch has more: dumps with huge pages take no more memory.
constexpr size_t kMostWaiting = size_t{64} << 20;

/// The unpacked bytes of a dump's file: bzip2 by all threads of the pool, other formats by one.
class DumpBytes {
 public:
  /// Begins at `place`, which has the last byte that is skipped.
  DumpBytes(const std::string& path, WorkerPool& pool, const DumpPlace& place = {}) : file_(path) {
    const bool bzip2 = file_.beginning().starts_with("BZh");
    if (place.stored_bit > 0) {
      file_.seek(place.stored_bit / 8);
      begin_ = place.unpacked_begin;
    }
    if (bzip2) {
      bzip2_.emplace(
          path, [this](char* to, size_t bytes) { return read_fully(file_, to, bytes); }, pool,
          Bzip2Place{place.stored_bit, static_cast<uint32_t>(place.stream_checksum)});
    } else {
      other_ = unpacked(file_);
    }
    plain_ = !bzip2 && packed_format(file_.beginning()).empty();
    end_ = begin_;
    skip(place.counts.xml_bytes);
  }

  /// The next bytes, or nothing at the end. Throws IoError, and DataError with the place in the file.
  std::optional<std::string> next() {
    if (!rest_.empty()) return std::exchange(rest_, {});
    std::optional<std::string> piece = unpack();
    if (!piece) return std::nullopt;
    if (bzip2_) blocks_.push_back({end_, bzip2_->place()});
    end_ += static_cast<int64_t>(piece->size());
    return piece;
  }

  /// The place in the unpacked dump after the bytes that next() has returned last.
  [[nodiscard]] int64_t end() const { return end_; }
  [[nodiscard]] int64_t bytes_read() const { return file_.offset(); }

  /// Adds the place of a byte of the file to `place`. The bytes never decrease.
  void locate(int64_t byte, DumpPlace& place) {
    if (plain_) {
      place.unpacked_begin = byte;
      place.stored_bit = 8 * byte;
    } else if (bzip2_) {
      while (blocks_.size() > 1 && blocks_[1].begin <= byte) blocks_.pop_front();
      place.unpacked_begin = blocks_.front().begin;
      place.stored_bit = blocks_.front().place.bit;
      place.stream_checksum = blocks_.front().place.checksum;
    }
  }

 private:
  struct Block {
    int64_t begin;  // in the unpacked dump
    Bzip2Place place;
  };

  std::optional<std::string> unpack() {
    if (bzip2_) return bzip2_->next();
    constexpr size_t kPiece = size_t{1} << 20;
    std::string piece(kPiece, '\0');
    piece.resize(read_fully(*other_, piece.data(), piece.size()));
    return piece.empty() ? std::nullopt : std::optional(std::move(piece));
  }

  /// Reads until the next byte is `byte`.
  void skip(int64_t byte) {
    while (end_ < byte) {
      std::optional<std::string> piece = next();
      if (!piece) throw DataError(file_.path(), file_.offset(), "the dump is shorter than when it was read before");
      if (end_ > byte) rest_ = piece->substr(piece->size() - static_cast<size_t>(end_ - byte));
    }
  }

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
  bool plain_ = false;
  int64_t begin_ = 0, end_ = 0;
  std::string rest_;          // unpacked, not returned yet
  std::deque<Block> blocks_;  // of bzip2, from that of the last located byte on
};

using Batch = std::vector<Article>;
using Wiki = std::pair<WikiNamespaces, std::string>;  // with the language

/// Converts articles in the background and delivers them in order.
class Converter {
 public:
  Converter(WorkerPool& pool, const std::function<void(const Article&)>& receive) : pool_(pool), receive_(receive) {}

  void add(Article article, const DumpPages& dump) {
    // <siteinfo> comes before the pages, so the first article sees all of it.
    if (!wiki_) wiki_ = std::make_shared<const Wiki>(dump.namespaces(), dump.language());
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
    bytes_ahead_ += bytes_;
    auto result = pool_.submit([batch = std::move(batch_), wiki = wiki_]() mutable {
      for (Article& article : batch)
        article.text = wikitext_to_prose(article.text, article.title, wiki->first, wiki->second);
      return std::move(batch);
    });
    batches_.emplace_back(bytes_, std::move(result));
    batch_.clear();
    bytes_ = 0;
    if (batches_.size() > kBatchesAhead * static_cast<size_t>(pool_.num_threads())) deliver();
    while (batches_.size() > 1 && bytes_ahead_ > kMostWaiting) deliver();
  }

  void deliver() {
    const Batch batch = pool_.wait(batches_.front().second);
    bytes_ahead_ -= batches_.front().first;
    batches_.pop_front();
    for (const Article& article : batch) receive_(article);
  }

  WorkerPool& pool_;
  const std::function<void(const Article&)>& receive_;
  std::shared_ptr<const Wiki> wiki_;
  Batch batch_;
  size_t bytes_ = 0;                                           // of batch_
  std::deque<std::pair<size_t, std::future<Batch>>> batches_;  // with their bytes of wikitext
  size_t bytes_ahead_ = 0;                                     // of batches_
};

/// The work of extract_dump().
class Extraction {
 public:
  Extraction(const std::string& path, const DumpOptions& options, const std::function<void(const Article&)>& receive)
      : path_(path), options_(options), pool_(options.num_threads), converter_(pool_, receive) {}

  DumpCounts run() {
    open({});
    std::exception_ptr damage;
    try {
      parse();
    } catch (const DataError&) {
      damage = std::current_exception();
    }
    converter_.finish();
    if (damage) std::rethrow_exception(damage);
    counts_.xml_bytes = bytes_->end();
    return counts_;
  }

 private:
  /// Begins to read at `place`: at 0, or after the bytes of head_ before the first page.
  void open(const DumpPlace& place) {
    const auto first_page = pages_ ? pages_->first_page() : std::nullopt;
    bytes_.emplace(path_, pool_, place);
    pages_.emplace(path_, [this](DumpPage page) { take(std::move(page)); });
    counts_ = place.counts;
    if (!first_page) return;
    pages_->parse(std::string_view(head_).substr(0, static_cast<size_t>(*first_page)));
    pages_->skip_to(place.counts.xml_bytes);
  }

  void parse() {
    constexpr size_t kMostHead = size_t{64} << 20;  // bytes before the first page; <siteinfo> has about 10,000
    while (const auto chunk = bytes_->next()) {
      if (!pages_->first_page()) head_ += *chunk;
      pages_->parse(*chunk);
      if (resume_) open(*std::exchange(resume_, std::nullopt));
      if (begun_) head_ = {};
      if (head_.size() > kMostHead && !pages_->first_page())
        throw DataError(path_ + " (unpacked)", bytes_->end(), "no page has begun; a dump of MediaWiki has pages");
      if (options_.progress) options_.progress(bytes_->bytes_read());
    }
    pages_->finish();
  }

  void take(DumpPage page) {
    if (!begun_) {
      begun_ = true;
      const DumpPlace place = options_.begin ? options_.begin() : DumpPlace{};
      if (place.counts.xml_bytes > 0) resume_ = place;
    }
    if (resume_) return;  // pages before the place
    ++counts_.pages;
    if (page.name_space != WikiNamespaces::kArticle) {
      ++counts_.other_namespaces;
    } else if (page.redirect) {
      ++counts_.redirects;
    } else if (page.model != "wikitext") {
      ++counts_.other_models;
    } else {
      ++counts_.articles;
      Article article{std::move(page.title), std::move(page.text), {.counts = counts_}};
      article.end.counts.xml_bytes = page.end;
      bytes_->locate(page.end, article.end);
      converter_.add(std::move(article), *pages_);
    }
  }

  const std::string path_;
  const DumpOptions& options_;
  WorkerPool pool_;
  Converter converter_;
  std::optional<DumpBytes> bytes_;
  std::optional<DumpPages> pages_;
  DumpCounts counts_;
  bool begun_ = false;               // options_.begin was called
  std::string head_;                 // the bytes of the dump before the first page, and some more, until then
  std::optional<DumpPlace> resume_;  // to go on at, when the chunk is parsed
};

}  // namespace

DumpCounts extract_dump(const std::string& path, const DumpOptions& options,
                        const std::function<void(const Article&)>& receive) {
  return Extraction(path, options, receive).run();
}

}  // namespace bert
