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
  extracted.counts = extract_dump(path, {.num_threads = threads}, [&](const Article& article) {
    extracted.articles.emplace_back(article.title, article.text);
  });
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

TEST_CASE("the language of a dump is that of xml:lang, or else of <dbname>", "[unit][wikitext]") {
  const auto prose = [](const std::string& attribute, const std::string& database) {
    const Dump dump("<mediawiki" + attribute + "><siteinfo><dbname>" + database + "</dbname></siteinfo>" +
                    page("A", "The words {{s|XIX}} of it.") + "</mediawiki>");
    return extract(dump.path).articles.at(0).second;
  };
  const std::string french = "The words XIXe siècle of it.\n", russian = "The words XIX of it.\n";
  CHECK(prose(" xml:lang=\"fr\"", "ruwiki") == french);
  CHECK(prose(" xml:lang=\"ru\"", "frwiki") == russian);
  CHECK(prose(" xml:lang=\"fr-CA\"", "") == french);
  CHECK(prose("", "frwiki") == french);
  CHECK(prose("", "ruwiki") == russian);
}

TEST_CASE("old dumps have neither <ns> nor <redirect>: titles and texts tell", "[unit][wikitext]") {
  const auto old_page = [](const std::string& title, const std::string& text) {
    return fmt::format("<page><title>{}</title><id>7</id><revision><id>9</id><text>{}</text></revision></page>\n",
                       title, text);
  };
  // Source: MediaWiki's export-0.3.xsd; the magic words "redirect" of MessagesDe.php and so on.
  std::string xml =
      "<mediawiki xmlns=\"http://www.mediawiki.org/xml/export-0.3/\" version=\"0.3\" xml:lang=\"de\"><siteinfo>"
      "<namespaces><namespace key=\"0\" /><namespace key=\"1\">Diskussion</namespace><namespace key=\"3\">Benutzer "
      "Diskussion</namespace><namespace key=\"10\">Vorlage</namespace></namespaces></siteinfo>\n";
  const std::vector<std::string> others = {"Diskussion:A", "Benutzer_Diskussion:B", "vorlage:C"};
  for (const std::string& title : others) xml += old_page(title, "Words of another namespace.");
  const std::vector<std::string> redirects = {"#REDIRECT [[A]]",    "#redirect: [[A]]",  "\n# WEITERLEITUNG [[A]]",
                                              "#REDIRECTION [[A]]", "#REDIRECCIÓN[[A]]", "#перенаправление [[A]]",
                                              "#重定向 [[A]]",      "#転送 [[A]]",       "＃リダイレクト[[A]]",
                                              "#تغییر_مسیر [[A]]"};
  for (const std::string& text : redirects) xml += old_page("R", text);
  xml += old_page("Krieg: ein Film", "An article.") +
         old_page("Image: a Film", "# A list of [[links]].\nIt has a text.") + "</mediawiki>";
  const Extracted got = extract(Dump(xml).path);
  CHECK(got.counts.other_namespaces == static_cast<int64_t>(others.size()));
  CHECK(got.counts.redirects == static_cast<int64_t>(redirects.size()));
  CHECK(got.articles == std::vector<std::pair<std::string, std::string>>{{"Krieg: ein Film", "An article.\n"},
                                                                         {"Image: a Film", "It has a text.\n"}});
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

TEST_CASE("a dump goes on after any article as if it had not been interrupted", "[unit][wikitext]") {
  std::string xml = kBegin;
  uint64_t state = 1;
  for (int i = 0; i < 100; ++i) {
    std::string text;  // that packs badly, so that there are several blocks
    while (text.size() < 5000) {
      state = state * 6364136223846793005U + 1442695040888963407U;  // Knuth's MMIX generator
      text += static_cast<char>('a' + (state >> 33) % 26);
      if (text.size() % 10 == 0) text += ' ';
    }
    xml += page(fmt::format("Title {}", i), "[[Plaatje X:a.jpg|b]]" + text,
                i % 7 == 3 ? "<redirect title=\"A\" />" : "", i % 5 == 2 ? 1 : 0);
  }
  const size_t half = xml.size() / 2;
  xml += "</mediawiki>\n";
  for (const std::string& bytes : {xml, bzip2(xml, 1), bzip2(xml.substr(0, half), 1) + bzip2(xml.substr(half), 2),
                                   bzip2(xml.substr(0, 300)) + bzip2(xml.substr(300)), testing::gzip_of(xml)}) {
    const Dump dump(bytes);
    std::vector<Article> all;
    const DumpCounts counts = extract_dump(dump.path, {}, [&](const Article& article) { all.push_back(article); });
    REQUIRE(all.size() > 60);
    for (size_t i = 0; i<all.size(); i += all.size() - i> 10 ? 10 : 1) {
      CAPTURE(i, bytes.size());
      size_t at = i + 1;
      bool same = true;
      const auto begin = [&] { return all[i].end; };
      const DumpCounts rest = extract_dump(dump.path, {.num_threads = 2, .begin = begin}, [&](const Article& article) {
        same = same && at < all.size() && article.title == all[at].title && article.text == all[at].text;
        ++at;
      });
      CHECK(same);
      CHECK(at == all.size());
      const auto values = [](const DumpCounts& from) {
        std::vector<int64_t> list;
        DumpCounts::visit_fields(from, [&](const char*, int64_t value) { list.push_back(value); });
        return list;
      };
      CHECK(values(rest) == values(counts));
    }
    if (bytes.starts_with("BZh")) CHECK(all.back().end.stored_bit > 0);
  }
}

TEST_CASE("an error after a place has the same byte as without it", "[unit][wikitext]") {
  const std::string xml =
      kBegin + page("A", "The first one is whole.") + page("B", "The second one is whole.") + page("C", "<b>");
  const Dump dump(xml);
  DumpPlace place;
  const auto message = [&](const DumpOptions& options) {
    try {
      extract_dump(dump.path, options, [&](const Article& article) { place = article.end; });
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string want = message({});
  CHECK_THAT(want, Contains(fmt::format("byte {}: ", xml.find("</text>", xml.find("<b>")) + 2)));  // of its name
  // The chunk of the first page has the damage too, so it is met while this chunk is read.
  CHECK(message({.begin = [&] { return place; }}) == want);
}

TEST_CASE("huge pages do not queue without a limit", "[unit][wikitext]") {
  constexpr int64_t kPage = 10'000'000, kPages = 10, kAllowed = 64 << 20;
  const TemporaryDirectory directory;
  const std::string path = directory.path("dump");
  {
    std::ofstream out(path, std::ios::binary);
    out << kBegin;
    for (int64_t i = 0; i < kPages; ++i) out << page("T", std::string(kPage, 'x'));
    out << "</mediawiki>";
  }
  int64_t read = 0, at_first = 0, articles = 0;
  extract_dump(path, {.num_threads = 4, .progress = [&](int64_t bytes) { read = bytes; }}, [&](const Article&) {
    if (articles++ == 0) at_first = read;
  });
  CHECK(articles == kPages);
  CHECK(at_first > kPage);
  CHECK(at_first < kAllowed + 2 * kPage);
}

TEST_CASE("a dump that ends too early is an error, after the pages before", "[unit][wikitext]") {
  const std::string xml = kBegin + page("A", "The first one is whole.") + page("B", "The second one is not.");
  const Dump dump(xml.substr(0, xml.size() - 40));
  std::vector<std::string> titles;
  const auto read = [&](const std::string& path) {
    titles.clear();
    extract_dump(path, {}, [&](const Article& article) { titles.push_back(article.title); });
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
    return testing::message_of<DataError>([&] { extract(dump.path); });
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
        words += static_cast<size_t>(std::ranges::count(line, ' ')) + 1;
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
