// A MediaWiki dump to the prose of its articles.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace bert {

/// Counts of a dump's pages. Every page counts in exactly one of redirects, other_namespaces, other_models and articles.
struct DumpCounts {
  int64_t pages = 0;
  int64_t redirects = 0;
  int64_t other_namespaces = 0;  // not namespace 0
  int64_t other_models = 0;      // not wikitext: JSON, CSS, ...
  int64_t articles = 0;          // delivered, with whatever prose they have
  int64_t xml_bytes = 0;         // unpacked

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("pages", self.pages);
    visit("redirects", self.redirects);
    visit("other_namespaces", self.other_namespaces);
    visit("other_content_models", self.other_models);
    visit("articles", self.articles);
    visit("xml_bytes", self.xml_bytes);
  }
};

/// A place in a dump: the end of an article. Reading can go on there without unpacking what is before, if the dump is
/// plain XML or bzip2. Other formats are unpacked again, and their pages before the place are not parsed.
struct DumpPlace {
  DumpCounts counts = {};  // of the pages before it; xml_bytes is the place in the unpacked dump, 0 at the beginning
  int64_t unpacked_begin = 0;   // byte of the unpacked dump, at or before the place, from which on it can be unpacked
  int64_t stored_bit = 0;       // of the file, for that byte: of a block of bzip2; of a byte, if the dump is not packed
  int64_t stream_checksum = 0;  // of bzip2: Bzip2Place

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    DumpCounts::visit_fields(self.counts, visit);
    visit("unpacked_begin", self.unpacked_begin);
    visit("stored_bit", self.stored_bit);
    visit("stream_checksum", self.stream_checksum);
  }
};

struct Article {
  std::string title;
  std::string text;  // prose as of wikitext_to_prose(), which may be empty
  DumpPlace end;     // the place after it
};

struct DumpOptions {
  int64_t num_threads = 1;
  /// Receives the number of bytes that were read of the dump's file. May be empty.
  std::function<void(int64_t bytes)> progress = {};
  /// Called once, before the first article, when the file has turned out to be a dump. Returns the place to begin at.
  /// Empty: the beginning.
  std::function<DumpPlace()> begin = {};
};

/// Reads a MediaWiki XML dump, plain or packed by gzip, bzip2, xz or zstd, and calls `receive` for each page of namespace 0 that is no
/// redirect, in the order of the dump and on the calling thread. Calls and results do not depend on the number of
/// threads. Of a page with several revisions the last one counts. Memory is bounded, whatever the size of the dump: one
/// page of at most 256 MB, 64 MB of other pages, and the blocks of bzip2 that are unpacked ahead (bzip2_reader.h).
/// Throws InputMissing, IoError, or DataError with the byte offset if the file is damaged or cut off; the articles
/// before that are received first. Returns the counts of the whole dump.
DumpCounts extract_dump(const std::string& path, const DumpOptions& options,
                        const std::function<void(const Article&)>& receive);

}  // namespace bert
