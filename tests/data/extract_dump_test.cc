#include "data/wikitext/extract_dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "data/io/error.h"
#include "tests/support/packed_text.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::bzip2;
using testing::Contains;
using testing::shared_data;
using testing::TemporaryDirectory;

constexpr const char* kBegin =
    "<mediawiki xmlns=\"http://www.mediawiki.org/xml/export-0.11/\" xml:lang=\"xx\">\n<siteinfo><namespaces>"
    "<namespace key=\"-1\">Speciaal</namespace><namespace key=\"0\" /><namespace key=\"6\">Plaatje X</namespace>"
    "</namespaces></siteinfo>\n";

std::string page(const std::string& title, const std::string& text, const std::string& more = "", int name_space = 0) {
  return fmt::format(
      "<page><title>{}</title><ns>{}</ns><id>7</id>{}<revision><id>9</id><model>wikitext</model><contributor>"
      "<username>x</username><id>3</id></contributor><text bytes=\"1\">{}</text></revision></page>\n",
      title, name_space, more, text);
}

struct Extracted {
  DumpCounts counts;
  std::vector<std::pair<std::string, std::string>> articles;
};

Extracted extract(const std::string& path, int64_t threads = 2) {
  Extracted extracted;
  extracted.counts = extract_dump(
      path, {.num_threads = threads, .progress = {}},
      [&](std::string_view title, std::string_view text) { extracted.articles.emplace_back(title, text); });
  return extracted;
}

struct Dump {
  TemporaryDirectory directory;
  std::string path = directory.path("dump");
  explicit Dump(const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }
};

TEST_CASE("articles are delivered, redirects and other pages are counted", "[unit][wikitext]") {
  const std::string xml =
      kBegin + page("A", "[[Plaatje X:a.jpg|b]]The cat &amp;amp; the &lt;b&gt;dog&lt;/b&gt;.") +
      page("B", "#REDIRECT [[A]]", "<redirect title=\"A\" />") + page("Talk:A", "Hello there.", "", 1) +
      page("C &amp; D", "") +
      "<page><title>J</title><ns>0</ns><id>1</id><revision><model>json</model><text>{}</text></revision></page>"
      "<page><title>R</title><ns>0</ns><revision><text>Old words here.</text></revision><revision>"
      "<text>New words here.</text></revision></page></mediawiki>";
  for (const std::string& bytes : {xml, bzip2(xml)}) {
    const Dump dump(bytes);
    const Extracted got = extract(dump.path);
    CHECK(got.articles == std::vector<std::pair<std::string, std::string>>{
                              {"A", "The cat & the dog.\n"}, {"C & D", ""}, {"R", "New words here.\n"}});
    CHECK(got.counts.pages == 6);
    CHECK(got.counts.redirects == 1);
    CHECK(got.counts.other_namespaces == 1);
    CHECK(got.counts.other_models == 1);
    CHECK(got.counts.articles == 3);
    CHECK(got.counts.xml_bytes == static_cast<int64_t>(xml.size()));
  }
}

TEST_CASE("the articles and their order do not depend on the number of threads", "[unit][wikitext]") {
  std::string xml = kBegin;
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (int line = 0; line < i % 50; ++line) text += fmt::format("Line {} of ''article'' [[{}]].\n\n", line, i);
    xml += page(fmt::format("Title {}", i), text);
  }
  xml += "</mediawiki>";
  const Dump dump(bzip2(xml, 1));
  const Extracted one = extract(dump.path, 1);
  CHECK(one.articles.size() == 3000);
  CHECK(one.articles[49].second.find("Line 48 of article 49.\n") != std::string::npos);
  for (const int64_t threads : {2, 5}) CHECK(extract(dump.path, threads).articles == one.articles);
}

TEST_CASE("a dump that ends too early is an error, after the pages before", "[unit][wikitext]") {
  const std::string xml = kBegin + page("A", "The first one is whole.") + page("B", "The second one is not.");
  const Dump dump(xml.substr(0, xml.size() - 40));
  std::vector<std::string> titles;
  const auto read = [&](const std::string& path) {
    titles.clear();
    extract_dump(path, {}, [&](std::string_view title, std::string_view) { titles.emplace_back(title); });
  };
  CHECK_THROWS_WITH(read(dump.path),
                    Contains(fmt::format("byte {}: ", xml.size() - 40)) && Contains("cut off") && Contains("\"B\""));
  CHECK(titles == std::vector<std::string>{"A"});
  const std::string packed = bzip2(xml + "</mediawiki>");
  const Dump cut(packed.substr(0, packed.size() - 3));
  CHECK_THROWS_WITH(read(cut.path), Contains("cut off"));
}

TEST_CASE("what is no dump is refused", "[unit][wikitext]") {
  const auto error_of = [](const std::string& bytes) {
    const Dump dump(bytes);
    try {
      extract(dump.path);
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  CHECK_THAT(error_of("<html></html>"), Contains("begins with <mediawiki>"));
  CHECK_THAT(error_of("words"), Contains("bad XML"));
  CHECK_THAT(error_of(""), Contains("cut off"));
  CHECK_THAT(error_of(kBegin + page("A", "<b>")), Contains("mismatched tag"));
  CHECK_THAT(error_of(kBegin + page("A", "\xFF")), Contains("bad XML in <text> of the page \"A\""));
  CHECK_THAT(error_of("<!DOCTYPE x [<!ENTITY a \"b\">]><mediawiki>&a;</mediawiki>"), Contains("document type"));
  CHECK_THAT(error_of(kBegin + page(std::string(5000, 'x'), "")), Contains("<title> has more than 4096 bytes"));
  CHECK_THAT(error_of("PK\x03\x04zip"), Contains("zip"));
  CHECK_THROWS_AS(extract("/no/such/dump"), InputMissing);
}

TEST_CASE("two excerpts of the English Wikipedia give prose without markup", "[unit][wikitext]") {
  if (shared_data().empty()) BERT_SKIP("needs ../shared/data/mediawiki");
  constexpr const char* kResidue[] = {"{{",    "}}",     "[[",      "]]",       "<ref",      "</",
                                      "{|",    "|}",     "'''",     "&nbsp;",   "&lt;",      "&gt;",
                                      "&amp;", "&quot;", "http://", "https://", "Category:", "thumb|"};
  size_t lines = 0, words = 0, bad = 0;
  for (const char* name : {"enwiki-pages-articles-206", "enwiki-table-markup"}) {
    const Extracted got = extract(shared_data() + "/mediawiki/" + name + ".xml.bz2");
    for (const auto& [title, text] : got.articles) {
      for (size_t at = 0; at < text.size();) {
        const size_t end = text.find('\n', at);
        const std::string line = text.substr(at, end - at);
        ++lines;
        words += static_cast<size_t>(std::count(line.begin(), line.end(), ' ')) + 1;
        bool clean = true;
        for (const char* sign : kResidue) clean = clean && line.find(sign) == std::string::npos;
        bad += !clean || std::string_view(" |!*#:").find(line.front()) != std::string_view::npos;
        at = end + 1;
      }
    }
  }
  CHECK(words > 400'000);
  CHECK(lines > 5000);
  CHECK(bad == 0);
}

}  // namespace
}  // namespace bert
