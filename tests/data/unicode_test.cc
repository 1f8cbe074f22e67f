#include "data/text/unicode.h"

#include <algorithm>
#include <string>
#include <vector>

#include "data/io/files.h"
#include "data/tokenizer/basic_tokenizer.h"
#include "tests/testing.h"

using bert::testing::shared_data;

namespace bert {
namespace {

/// The code points that Python's bytes.decode("utf-8", "replace") gives.
std::vector<char32_t> decoded(std::string_view text) {
  std::vector<char32_t> values;
  while (!text.empty()) {
    const DecodedUtf8 next = decode_utf8(text);
    values.push_back(next.value);
    text.remove_prefix(static_cast<size_t>(next.bytes));
  }
  return values;
}

std::u32string from_hex(std::string_view field) {
  std::u32string value;
  for (size_t begin = 0; begin < field.size();) {
    const size_t end = std::min(field.find(' ', begin), field.size());
    value.push_back(static_cast<char32_t>(std::stoul(std::string(field.substr(begin, end - begin)), nullptr, 16)));
    begin = end + 1;
  }
  return value;
}

}  // namespace

TEST_CASE("UTF-8 decodes, and maximal invalid subparts count as one", "[unit]") {
  constexpr char32_t kBad = kInvalidUtf8;
  const std::vector<std::pair<std::string, std::vector<char32_t>>> cases{
      {"a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", {'a', 0xE9, 0x20AC, 0x1F600}},
      {"\xEF\xBF\xBF\xF4\x8F\xBF\xBF", {0xFFFF, 0x10FFFF}},
      {"\x80\xBF", {kBad, kBad}},
      {"\xC0\xAF", {kBad, kBad}},                      // overlong
      {"\xE0\x80\xAF", {kBad, kBad, kBad}},            // overlong
      {"\xED\xA0\x80", {kBad, kBad, kBad}},            // a surrogate
      {"\xF4\x90\x80\x80", {kBad, kBad, kBad, kBad}},  // above U+10FFFF
      {"\xE2\x82", {kBad}},                            // cut at the end
      {"\xF0\x9F\x98", {kBad}},
      {"\xF0\x9F\x98x", {kBad, 'x'}},
      // Table 3-11 of The Unicode Standard 15.0.
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", {kBad, kBad, kBad, kBad, 'A'}},
  };
  for (const auto& [text, want] : cases) CHECK(decoded(text) == want);
  CHECK(count_invalid_utf8("a\x80\xE2\x82z") == 2);
}

TEST_CASE("White space is stripped as str.strip does", "[unit]") {
  CHECK(strip_space(" \t a b\xC2\xA0\xE3\x80\x80\r\n") == "a b");
  CHECK(strip_space("\xE2\x80\xA8") == "");
  CHECK(strip_space("") == "");
  CHECK(strip_space("\xC3\xA9") == "\xC3\xA9");
}

TEST_CASE("The final sigma depends on cased letters around it", "[unit]") {
  const auto fold = [](const std::u32string& text) {
    std::vector<SourceCharacter> characters;
    for (const char32_t c : text) characters.push_back({c, 0, 0});
    fold_in_context(characters, {});
    std::u32string folded;
    for (const SourceCharacter& c : characters) folded.push_back(c.value);
    return folded;
  };
  // Values of Python's str.lower.
  CHECK((fold(U"\u0391\u03A3") == U"\u03B1\u03C2"));
  CHECK((fold(U"\u03A3") == U"\u03C3"));
  CHECK((fold(U"\u0391\u03A3\u0391") == U"\u03B1\u03C3\u03B1"));
  CHECK((fold(U"\u0391'\u03A3.") == U"\u03B1'\u03C2."));
  CHECK((fold(U"\u0391\u03A3'\u0391") == U"\u03B1\u03C3'\u03B1"));
  CHECK((fold(U"\u0391-\u03A3") == U"\u03B1-\u03C3"));
  CHECK((fold(U"\u0130\u00C5\uAC01") == U"ia\u1100\u1161\u11A8"));
}

TEST_CASE("Folding equals NFD without Mn on Unicode's normalisation test", "[unit]") {
  if (shared_data().empty()) BERT_SKIP("needs ../shared/data/tokenizer/NormalizationTest.txt");
  const std::string text = read_file(shared_data() + "/tokenizer/NormalizationTest.txt");
  int64_t rows = 0, different = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (line.empty() || line[0] == '#' || line[0] == '@') continue;
    std::array<std::u32string, 3> columns;  // source; NFC; NFD
    size_t at = 0;
    for (auto& column : columns) {
      const size_t stop = line.find(';', at);
      column = from_hex(line.substr(at, stop - at));
      at = stop + 1;
    }
    std::vector<SourceCharacter> folded, want;
    for (const char32_t c : columns[0]) folded.push_back({c, 0, 0});
    for (const char32_t c : columns[2]) want.push_back({c, 0, 0});
    fold_in_context(folded, {});
    fold_in_context(want, {});  // folds case and drops marks; the text is already decomposed and in order
    ++rows;
    different += !std::ranges::equal(folded, want, [](auto& a, auto& b) { return a.value == b.value; });
  }
  CHECK(rows > 18000);
  CHECK(different == 0);
}

}  // namespace bert
