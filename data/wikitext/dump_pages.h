// The pages of a MediaWiki XML dump.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "data/wikitext/wikitext.h"

namespace bert {

struct DumpPage {
  std::string title;
  int64_t id = 0;
  int name_space = 0;
  bool redirect = false;
  std::string model = "wikitext";
  std::string text;  // of the last revision
  int64_t end = 0;   // byte of the unpacked dump after the page
};

/// Parses a dump that arrives in pieces. Source: MediaWiki's export-0.3.xsd to export-0.11.xsd. Versions before 0.5 have no
/// <ns> and no <redirect>: the namespace of a page is then that of the title's prefix, as <siteinfo> lists it. A page that
/// begins with a redirect in a large language is one in every version.
class DumpPages {
 public:
  /// `receive` gets every page at its end. `name` is the file's name in messages.
  DumpPages(std::string name, std::function<void(DumpPage page)> receive);
  ~DumpPages();
  DumpPages(const DumpPages&) = delete;
  DumpPages& operator=(const DumpPages&) = delete;

  /// Parses the next bytes. Throws DataError with the byte offset in the unpacked dump: no XML, another XML than
  /// <mediawiki>, a document type (a dump has none, and entities of one can fill the memory), text of more than 256 MB.
  void parse(std::string_view bytes);
  /// The next bytes are those from byte `byte` of the dump on, which is the end of a page or the beginning of the first.
  void skip_to(int64_t byte);
  /// The byte at which the first page begins. Empty before it.
  [[nodiscard]] std::optional<int64_t> first_page() const;
  /// Throws DataError if the dump is not at its end.
  void finish();

  /// The names in <siteinfo>, which comes before the pages.
  [[nodiscard]] const WikiNamespaces& namespaces() const;
  /// The code of the wiki's language, "fr": that of <mediawiki xml:lang="fr">, or else of <dbname>frwiki</dbname>. Without
  /// a variant: "zh" for "zh-hans". Empty if the dump tells none.
  [[nodiscard]] const std::string& language() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bert
