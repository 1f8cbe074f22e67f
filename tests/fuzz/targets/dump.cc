// MediaWiki dumps: XML in pieces.
#include "data/wikitext/dump_pages.h"
#include "tests/fuzz/targets/fuzz_targets.h"

namespace bert::testing {
namespace {

std::vector<std::string> seeds() {
  const std::string page =
      "<page><title>A &amp; B</title><ns>0</ns><id>7</id><revision><id>9</id><model>wikitext</model>"
      "<text bytes=\"3\" xml:space=\"preserve\">'''A''' &lt;b&gt;</text></revision></page>";
  const std::string redirect =
      "<page><title>C</title><ns>0</ns><redirect title=\"A\" /><revision><text/></revision></page>";
  return {
      "<mediawiki xmlns=\"http://www.mediawiki.org/xml/export-0.11/\" version=\"0.11\" xml:lang=\"en\"><siteinfo>"
      "<namespaces><namespace key=\"14\" case=\"first-letter\">Category</namespace></namespaces></siteinfo>" +
      page + redirect + "</mediawiki>"};
}

void read(std::string_view input) {
  constexpr size_t kPiece = 100;  // pieces end within tags and characters
  size_t pages = 0;
  DumpPages dump("dump", [&](const DumpPage&) { ++pages; });
  for (size_t at = 0; at < input.size(); at += kPiece) dump.parse(input.substr(at, kPiece));
  dump.finish();
}

}  // namespace

FuzzTarget dump_target() { return {"dump", seeds(), read}; }

}  // namespace bert::testing
