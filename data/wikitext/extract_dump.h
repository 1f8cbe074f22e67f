// A MediaWiki dump to the prose of its articles.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace bert {

/// What a dump contained. Every page counts in exactly one of redirects, other_namespaces, other_models and articles.
struct DumpCounts {
  int64_t pages = 0;
  int64_t redirects = 0;
  int64_t other_namespaces = 0;  // not namespace 0
  int64_t other_models = 0;      // not wikitext: JSON, CSS, ...
  int64_t articles = 0;          // delivered, with whatever prose they have
  int64_t xml_bytes = 0;         // unpacked
};

struct DumpOptions {
  int64_t num_threads = 1;
  /// Receives the number of bytes that were read of the dump's file.
  std::function<void(int64_t bytes)> progress;
};

/// Receives an article: title, and prose as of wikitext_to_prose(), which may be empty.
using ArticleReceiver = std::function<void(std::string_view title, std::string_view text)>;

/// Reads a MediaWiki XML dump, plain or packed by gzip, bzip2, xz or zstd, and calls `receive` for each page of namespace 0 that is no
/// redirect, in the order of the dump and on the calling thread. Calls and results do not depend on the number of
/// threads. Of a page with several revisions the last one counts. Memory is bounded, whatever the size of the dump.
/// Throws InputMissing, IoError, or DataError with the byte offset if the file is damaged or cut off; the articles
/// before that are received first.
DumpCounts extract_dump(const std::string& path, const DumpOptions& options, const ArticleReceiver& receive);

}  // namespace bert
