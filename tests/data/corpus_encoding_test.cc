// Encodings other than UTF-8 are named, and converted on request.
#include <cctype>
#include <filesystem>
#include <map>

#include "data/corpus/encoding.h"
#include "data/io/error.h"
#include "tests/support/corpus_testing.h"
#include "tests/support/text_file.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;
using testing::documents_of;
using testing::run_shell;
using testing::TemporaryDirectory;
using testing::write_text;

const std::string kFrench =
    "\u00c0 l'\u00e9poque o\u00f9 la for\u00eat s'\u00e9tendait jusqu'\u00e0 la rivi\u00e8re, les gar\u00e7ons du "
    "village allaient p\u00eacher d\u00e8s l'aube. Leur m\u00e8re les pr\u00e9venait\u00a0: \u00ab N'oubliez pas le "
    "pain\u00a0! \u00bb Apr\u00e8s le d\u00e9jeuner, ils s'en retournaient d\u00e9\u00e7us, sans avoir rien pris.\n";
const std::string kEnglish =
    "It was the children\u2019s holiday, and they didn\u2019t mind the rain. \u201cLet us go,\u201d said the eldest, "
    "\u201cbefore it\u2019s dark.\u201d The road was long \u2013 longer than they had thought.\n";
const std::string kRussian =
    "\u0412\u0441\u0435 \u0441\u0447\u0430\u0441\u0442\u043b\u0438\u0432\u044b\u0435 \u0441\u0435\u043c\u044c\u0438 "
    "\u043f\u043e\u0445\u043e\u0436\u0438 \u0434\u0440\u0443\u0433 \u043d\u0430 \u0434\u0440\u0443\u0433\u0430, "
    "\u043a\u0430\u0436\u0434\u0430\u044f \u043d\u0435\u0441\u0447\u0430\u0441\u0442\u043b\u0438\u0432\u0430\u044f "
    "\u0441\u0435\u043c\u044c\u044f \u043d\u0435\u0441\u0447\u0430\u0441\u0442\u043b\u0438\u0432\u0430 \u043f\u043e-"
    "\u0441\u0432\u043e\u0435\u043c\u0443.\n";
const std::string kJapanese =
    "\u543e\u8f29\u306f\u732b\u3067\u3042\u308b\u3002\u540d\u524d\u306f\u307e\u3060\u7121\u3044\u3002\u3069\u3053\u3067"
    "\u751f\u308c\u305f\u304b\u3068\u3093\u3068\u898b\u5f53\u304c\u3064\u304b\u306c\u3002\u4f55\u3067\u3082\u8584\u6697"
    "\u3044\u3058\u3081\u3058\u3081\u3057\u305f\u6240\u3067\u6ce3\u3044\u3066\u3044\u305f\u4e8b\u3060\u3051\u306f\u8a18"
    "\u61b6\u3057\u3066\u3044\u308b\u3002\n";
const std::string kChinese =
    "\u6211\u4eec\u4eca\u5929\u53bb\u516c\u56ed\u770b\u82b1\uff0c\u5929\u6c14\u5f88\u597d\uff0c\u4eba\u4e5f\u5f88\u591a"
    "\u3002\u5b69\u5b50\u4eec\u5728\u8349\u5730\u4e0a\u8dd1\u6765\u8dd1\u53bb\uff0c\u5927\u5bb6\u90fd\u5f88\u9ad8\u5174"
    "\u3002\u665a\u4e0a\u56de\u5bb6\u7684\u65f6\u5019\uff0c\u5df2\u7ecf\u516b\u70b9\u591a\u4e86\u3002\n";
const std::string kTaiwanese =
    "\u6211\u5011\u4eca\u5929\u53bb\u516c\u5712\u770b\u82b1\uff0c\u5929\u6c23\u5f88\u597d\uff0c\u4eba\u4e5f\u5f88\u591a"
    "\u3002\u5b69\u5b50\u5011\u5728\u8349\u5730\u4e0a\u8dd1\u4f86\u8dd1\u53bb\uff0c\u5927\u5bb6\u90fd\u5f88\u9ad8\u8208"
    "\u3002\u665a\u4e0a\u56de\u5bb6\u7684\u6642\u5019\uff0c\u5df2\u7d93\u516b\u9ede\u591a\u4e86\u3002\n";

std::string repeated(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

/// The file with `text` in the encoding, by the program iconv.
std::string encoded(const TemporaryDirectory& directory, const std::string& text, const std::string& encoding) {
  write_text(directory.path("utf8"), text);
  const std::string path = directory.path(encoding);
  REQUIRE(run_shell("iconv -f UTF-8 -t " + encoding + " " + directory.path("utf8") + " >" + path));
  return path;
}

std::string refusal(const std::string& path, const std::string& encoding = "") {
  return testing::message_of<DataError>(
      [&] { documents_of({path}, {.layout = Layout::kLines, .encoding = encoding}); });
}

TEST_CASE("Text in another encoding is refused with its name, and read with --encoding", "[unit][corpus]") {
  struct Case {
    std::string text, encoding, named;
  };
  const std::vector<Case> cases = {
      {kFrench, "ISO-8859-1", "ISO-8859-1"},
      {kFrench, "WINDOWS-1252", ""},  // the same bytes as ISO-8859-1
      {kEnglish, "WINDOWS-1252", "WINDOWS-1252"},
      {kRussian, "KOI8-R", "KOI8-R"},
      {kRussian, "WINDOWS-1251", "WINDOWS-1251"},
      {kJapanese, "SHIFT_JIS", "SHIFT_JIS"},
      {kJapanese, "EUC-JP", "EUC-JP"},
      {kJapanese, "ISO-2022-JP", "ISO-2022-JP"},
      {kChinese, "GB18030", "GB18030"},
      {kTaiwanese, "BIG5", "BIG5"},
      {kEnglish, "UTF-16", "UTF-16"},
      {kEnglish, "UTF-16LE", "UTF-16LE"},
      {kEnglish, "UTF-16BE", "UTF-16BE"},
      {kChinese, "UTF-16LE", "UTF-16LE"},
      {kChinese, "UTF-16BE", "UTF-16BE"},
      {kChinese, "UTF-32", "UTF-32"},
      {kChinese, "UTF-32LE", "UTF-32LE"},
      {kRussian, "UTF-32BE", "UTF-32BE"},
  };
  const TemporaryDirectory directory;
  for (const Case& c : cases) {
    CAPTURE(c.encoding);
    const std::string path = encoded(directory, repeated(c.text, 20), c.encoding);
    CHECK_THAT(refusal(path), Contains(path + ": byte ") && Contains("--encoding " + c.named));
    const std::vector<std::string> lines = documents_of({path}, {.layout = Layout::kLines, .encoding = c.encoding});
    REQUIRE(lines.size() == 20);
    CHECK(lines.back() + "\n" == c.text);
  }
}

TEST_CASE("Conversion does not depend on the places where pieces meet", "[unit][corpus]") {
  const TemporaryDirectory directory;
  // An odd number of bytes before the text moves every character against the pieces.
  const std::string text = "x" + repeated(kChinese, 20000);
  for (const std::string encoding : {"UTF-16", "GB18030", "UTF-32BE", "ISO-2022-CN-EXT"}) {
    CAPTURE(encoding);
    const std::string path = encoded(directory, text, encoding);
    DocumentReader reader({path}, {.layout = Layout::kFiles, .encoding = encoding});
    std::string document;
    REQUIRE(reader.next(document));
    CHECK(document == text);
    CHECK(reader.statistics().invalid_sequences == 0);
  }
}

TEST_CASE("UTF-8 with some damage stays UTF-8, and is not converted", "[unit][corpus]") {
  const TemporaryDirectory directory;
  CHECK(find_encoding("").empty());
  CHECK(find_encoding(repeated(kRussian, 3)).empty());
  CHECK(find_encoding("a \xFF b").empty());
  CHECK(find_encoding("na\xEFve caf\xE9, d\xE9j\xE0 vu") == "ISO-8859-1");
  CHECK(find_encoding(repeated(kJapanese, 30) + repeated("\xFF", 40)).empty());
  CHECK(find_encoding("colour \x1B[31mred\x1B[0m\n").empty());
  const std::string russian = write_text(directory.path("a"), repeated(kRussian, 3)),
                    ascii = write_text(directory.path("b"), "plain\n");
  CHECK_THAT(refusal(russian, "KOI8-R"), Contains("a: is UTF-8, not KOI8-R; read it apart"));
  CHECK_THAT(refusal(ascii, "UTF-16"), Contains("b: is UTF-8, not UTF-16"));
  CHECK(refusal(ascii, "KOI8-R").empty());
  CHECK(refusal(russian, "utf-8").empty());
  // The text is longer than what is looked at, whose end may be within a character.
  for (const std::string before : {"", "x", "xx"}) {
    const std::string chinese = write_text(directory.path("c"), before + repeated(kChinese, 8000));
    CHECK_THAT(refusal(chinese, "KOI8-R"), Contains("c: is UTF-8, not KOI8-R"));
  }
}

TEST_CASE("Bytes that mean nothing in an encoding are dropped and counted, few or refused", "[unit][corpus]") {
  const TemporaryDirectory directory;
  std::string bytes = read_file(encoded(directory, repeated(kJapanese, 20), "EUC-JP"));
  const size_t whole = bytes.size();
  bytes.insert(bytes.size() / 2 / 2 * 2, "\xFF");
  const std::string path = write_text(directory.path("a"), bytes + "\xB5");  // half of a character at the end
  DocumentReader reader({path}, {.layout = Layout::kLines, .encoding = "EUC-JP"});
  for (std::string document; reader.next(document);) {
  }
  CHECK(reader.statistics().invalid_sequences >= 2);
  CHECK(reader.statistics().invalid_sequences <= 10);
  write_text(path, repeated("\xFF\xFE \n", static_cast<int>(whole)));
  CHECK_THAT(refusal(path, "EUC-JP"), Contains("is not EUC-JP: ") && Contains("mean nothing in it"));
}

TEST_CASE("Names of encodings are checked", "[unit][corpus]") {
  CHECK(is_known_encoding("latin1"));
  CHECK(is_known_encoding("UTF-16LE"));
  for (const std::string name : {"", "no-such", "UTF-8//IGNORE", "/"}) CHECK_FALSE(is_known_encoding(name));
  const TemporaryDirectory directory;
  CHECK_THROWS_AS(DocumentReader({write_text(directory.path("a"), "a")}, {.encoding = "no-such"}),
                  std::invalid_argument);
}

}  // namespace
}  // namespace bert
