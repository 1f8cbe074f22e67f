#include "data/tokenizer/tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "data/io/error.h"
#include "data/io/files.h"
#include "data/tokenizer/vocabulary_warnings.h"
#include "tests/testing.h"

using bert::testing::Contains;
using bert::testing::golden;
using bert::testing::shared_data;
using bert::testing::TemporaryDirectory;

namespace bert {
namespace {

using Tokens = std::vector<std::string>;

const nlohmann::json& golden_data() {
  static const auto data = nlohmann::json::parse(read_file(golden("tokenizer.json")));
  return data;
}

Tokens with_special(Tokens tokens) {
  Tokens all{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  all.insert(all.end(), tokens.begin(), tokens.end());
  return all;
}

WordPieceTokenizer small_tokenizer(const TokenizerConfig& config = {}) {
  return WordPieceTokenizer(
      Vocabulary(with_special({"un", "##aff", "##able", "cafe", "##s", "a", "##a", "'", "[", "]", "mask", "\u4E2D",
                               "\u1100", "##\u1161", "\u03B1", "##\u03C2", "##\u03C3", ";"})),
      config);
}

/// The words of `text`, joined by spaces.
std::string words(const BasicTokenizer& tokenizer, const std::string& text) {
  std::string joined;
  tokenizer.for_each_word<false>(text, [&](const Word& word) {
    if (!joined.empty()) joined.push_back(' ');
    joined.append(word.text);
  });
  return joined;
}

std::string utf8(char32_t value) {
  std::string text;
  append_utf8(value, text);
  return text;
}

uint64_t fnv1a(uint64_t value, const std::string& bytes) {
  for (const char byte : bytes) value = (value ^ static_cast<unsigned char>(byte)) * 0x100000001B3U;
  return value;
}

/// The hash that the golden has for the ranges of code points of a block: that of the words of each code point in five
/// places.
uint64_t hash_of_ranges(const nlohmann::json& ranges, const BasicTokenizer& cased, const BasicTokenizer& uncased) {
  uint64_t hash = 0xCBF29CE484222325U;
  for (const auto& range : ranges) {
    for (char32_t value = range.at(0); value <= range.at(1).get<char32_t>(); ++value) {
      const std::string c = utf8(value), sigma = utf8(0x3A3);
      hash = fnv1a(hash, words(cased, "a" + c + "b") + "\n");
      for (const std::string& text : {"a" + c + "b", "A" + c + sigma, "A" + sigma + c + "A", c + sigma}) {
        hash = fnv1a(hash, words(uncased, text) + "\n");
      }
    }
  }
  return hash;
}

}  // namespace

TEST_CASE("A vocabulary that does not fit the case of the text, or repeats tokens, is warned of", "[unit][tokenizer]") {
  const auto warnings = [](const Tokens& tokens, bool lower) {
    return vocabulary_warnings(WordPieceTokenizer(Vocabulary(with_special(tokens)), {.do_lower_case = lower}), "v.txt");
  };
  CHECK(warnings({"the", "##s", "[unused1]"}, true).empty());
  CHECK(warnings({"The", "the", "##s"}, false).empty());
  CHECK(warnings({"\u4E2D", "##1"}, true).empty());
  CHECK(warnings({"\u4E2D", "##1"}, false).empty());
  const Tokens cased = warnings({"the", "The", "\u0416", "##s"}, true);
  REQUIRE(cased.size() == 1);
  CHECK(
      cased[0] ==
      "v.txt: 2 tokens have capital letters, the first is \"The\" of line 7; text in lower case never becomes these. A "
      "cased vocabulary needs do_lower_case false (--cased)");
  const Tokens signs = warnings({"\u0939", "\u0928"}, true);  // Devanagari
  REQUIRE(signs.size() == 1);
  CHECK_THAT(signs[0], Contains("v.txt: 2 tokens are of Devanagari") && Contains("strip_accents false"));
  CHECK(warnings({"\u0939", "\u093F"}, false).empty());
  const Tokens uncased = warnings({"the", "##s"}, false);
  REQUIRE(uncased.size() == 1);
  CHECK_THAT(uncased[0], Contains("v.txt: no token has a capital letter, so that words with one become [UNK]"));
  const Tokens repeated = warnings({"the", "##s", "the", "a", "a"}, true);
  REQUIRE(repeated.size() == 1);
  CHECK_THAT(repeated[0], Contains("v.txt: 2 tokens occur again further down, the first is \"the\" of lines 6 and 8"));
}

TEST_CASE("Ids equal Google's algorithm on fuzz text", "[golden]") {
  const auto& data = golden_data();
  const auto tokens = data.at("vocabulary").get<Tokens>();
  const auto lines = data.at("lines").get<Tokens>();
  for (const bool lower : {true, false}) {
    const WordPieceTokenizer tokenizer(Vocabulary(tokens), {.do_lower_case = lower});
    const auto want = data.at(lower ? "uncased" : "cased").get<std::vector<std::vector<int32_t>>>();
    for (size_t i = 0; i < lines.size(); ++i) {
      INFO((lower ? "uncased" : "cased") << " line " << i << ": " << lines[i]);
      REQUIRE(tokenizer.encode(lines[i]) == want[i]);
      const Encoding encoding = tokenizer.encode_with_offsets(lines[i]);
      REQUIRE(encoding.ids == want[i]);
      REQUIRE(encoding.spans.size() == want[i].size());
    }
  }
  const WordPieceTokenizer tokenizer{Vocabulary(tokens)};
  for (const auto& [rule, twins] : data.at("broken").items()) {
    INFO("twin with a broken rule: " << rule);
    REQUIRE(!twins.empty());
    for (const auto& twin : twins)
      CHECK(tokenizer.encode(lines.at(twin.at(0))) != twin.at(1).get<std::vector<int32_t>>());
  }
}

TEST_CASE("Every code point is cleaned, folded and split as Google's algorithm does", "[golden]") {
  const BasicTokenizer uncased(TokenizerConfig{.do_lower_case = true}), cased(TokenizerConfig{.do_lower_case = false});
  int64_t blocks = 0;
  for (const auto& block : golden_data().at("code_points")) {
    INFO("block of U+" << std::hex << block.at(0).at(0).at(0).get<int>());
    const uint64_t want = std::stoull(block.at(1).get<std::string>(), nullptr, 16);
    CHECK(hash_of_ranges(block.at(0), cased, uncased) == want);
    CHECK(hash_of_ranges(block.at(0), cased, cased) != want);  // the negative twin: not folded
    ++blocks;
  }
  CHECK(blocks > 600);
}

TEST_CASE("WordPiece takes the longest piece, or [UNK] for the whole word", "[unit]") {
  const WordPieceTokenizer tokenizer = small_tokenizer();
  CHECK(tokenizer.tokens("Unaffable") == Tokens{"un", "##aff", "##able"});
  CHECK(tokenizer.tokens("unaffablex un") == Tokens{"[UNK]", "un"});
  CHECK(tokenizer.tokens("caf\u00E9s cafe\u0301s") == Tokens{"cafe", "##s", "cafe", "##s"});
  CHECK(tokenizer.tokens("a\u4E2Da") == Tokens{"a", "\u4E2D", "a"});
  CHECK(tokenizer.tokens("\uAC00") == Tokens{"\u1100", "##\u1161"});
  CHECK(tokenizer.tokens("\u0391\u03A3 \u0391\u03A3'\u0391") ==
        Tokens{"\u03B1", "##\u03C2", "\u03B1", "##\u03C3", "'", "\u03B1"});
  CHECK(tokenizer.tokens("a\u00AD\u200Ba\u0007\uFFFDa") == Tokens{"a", "##a", "##a"});
  CHECK(tokenizer.tokens("a\u037Ea") == Tokens{"a", ";", "a"});  // the Greek question mark decomposes to a semicolon
  CHECK(tokenizer.tokens("").empty());
  CHECK(tokenizer.tokens(" \u0301 ").empty());
  CHECK(tokenizer.decode(tokenizer.encode("unaffable cafe")) == "unaffable cafe");
  CHECK(tokenizer.is_continuation(tokenizer.vocabulary().find("##aff")));
  CHECK_FALSE(tokenizer.is_continuation(tokenizer.vocabulary().find("un")));
  CHECK_THROWS_WITH(tokenizer.decode({23}), Contains("outside of the vocabulary's 0..22"));
}

TEST_CASE("A word may have 200 characters, or as many as the option says", "[unit]") {
  const WordPieceTokenizer google = small_tokenizer(),
                           hugging_face = small_tokenizer({.max_input_chars_per_word = 100});
  const auto a = [](size_t count) { return std::string(count, 'a'); };
  CHECK(google.encode(a(200)).size() == 200);
  CHECK(google.tokens(a(201) + " a") == Tokens{"[UNK]", "a"});
  CHECK(google.tokens(a(100'000)) == Tokens{"[UNK]"});
  CHECK(google.encode(a(200) + "\u0301").size() == 200);  // counted without accents
  CHECK(hugging_face.encode(a(100)).size() == 100);
  CHECK(hugging_face.tokens(a(101)) == Tokens{"[UNK]"});
}

TEST_CASE("Special tokens in the text are text, unless asked for", "[unit]") {
  CHECK(small_tokenizer().tokens("a[MASK]a") == Tokens{"a", "[", "mask", "]", "a"});
  const WordPieceTokenizer matching = small_tokenizer({.match_special_tokens = true});
  CHECK(matching.tokens("a[MASK]a [mask][SEP]") == Tokens{"a", "[MASK]", "a", "[", "mask", "]", "[SEP]"});
  const Encoding encoding = matching.encode_with_offsets("\u00E4 [MASK]a");
  CHECK(encoding.spans == std::vector<TextSpan>{{0, 2}, {3, 9}, {9, 10}});
}

TEST_CASE("Offsets point into the original text", "[unit]") {
  const WordPieceTokenizer tokenizer = small_tokenizer();
  const std::string text = " Un\u00ADaff\u00E9 CAFE\u0301S\u4E2D\uAC00 x\xFF\u0391\u03A3";
  //  bytes: 0 space, 1 U, 2 n, 3-4 soft hyphen, 5 a, 6 f, 7 f, 8-9 e acute, 10 space, 11 C .. 14 E, 15-16 acute, 17 S,
  //  18-20 ideograph, 21-23 hangul, 24 space, 25 x, 26 invalid, 27-28 alpha, 29-30 sigma
  const Encoding encoding = tokenizer.encode_with_offsets(text);
  CHECK(encoding.invalid_sequences == 1);
  CHECK(encoding.spans == std::vector<TextSpan>{{1, 10}, {11, 15}, {17, 18}, {18, 21}, {21, 24}, {21, 24}, {25, 31}});
  CHECK(character_spans(text, encoding.spans) ==
        std::vector<TextSpan>{{1, 8}, {9, 13}, {14, 15}, {15, 16}, {16, 17}, {16, 17}, {18, 22}});
  CHECK(tokenizer.encode_with_offsets("\u0391'\u03A3").spans == std::vector<TextSpan>{{0, 2}, {2, 3}, {3, 5}});
}

TEST_CASE("Random bytes are tokenized, with places in order and inside", "[unit]") {
  const auto tokens = golden_data().at("vocabulary").get<Tokens>();
  const WordPieceTokenizer tokenizer{Vocabulary(tokens)};
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string text(random() % 60, '\0');
    for (char& byte : text)
      byte = static_cast<char>(random() % 4 == 0 ? "\xCE\xA3'A \xE3\x80\xAE"[random() % 8] : random());
    const Encoding encoding = tokenizer.encode_with_offsets(text);
    REQUIRE(encoding.ids == tokenizer.encode(text));
    REQUIRE(encoding.invalid_sequences == count_invalid_utf8(text));
    for (const TextSpan& span : encoding.spans) {
      REQUIRE(span.begin >= 0);
      REQUIRE(span.begin < span.end);
      REQUIRE(span.end <= static_cast<int64_t>(text.size()));
    }
  }
}

TEST_CASE("Invalid UTF-8 is dropped and counted", "[unit]") {
  if (shared_data().empty()) BERT_SKIP("needs ../shared/data/tokenizer/UTF-8-test.txt");
  const std::string text = read_file(shared_data() + "/tokenizer/UTF-8-test.txt");
  const WordPieceTokenizer tokenizer = small_tokenizer();
  std::vector<int32_t> ids;
  // bytes.decode("utf-8", "replace").count("\ufffd") in Python is 379; one of them stands in the text.
  CHECK(tokenizer.encode(text, ids) == 378);
}

TEST_CASE("Vocabulary errors say what is missing and where", "[unit]") {
  const TemporaryDirectory directory;
  const auto file = [&](const std::string& text) {
    AtomicFile out(directory.path("vocab.txt"));
    out.write(text);
    out.commit();
    return directory.path("vocab.txt");
  };
  CHECK_THROWS_WITH(Vocabulary::load(file("[PAD]\n[UNK]\n[SEP]\na\n")),
                    Contains("vocab.txt: 4 tokens, without [CLS] [MASK]"));
  CHECK_THROWS_WITH(Vocabulary::load(file("[PAD]\na\xFF\n")), Contains("vocab.txt: line 2: the token is not UTF-8"));
  CHECK_THROWS_AS(Vocabulary::load(directory.path("absent.txt")), InputMissing);
  CHECK(Vocabulary::load(file("\xEF\xBB\xBF[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")).find("[PAD]") == 0);
  const Vocabulary vocabulary = Vocabulary::load(file("[PAD]\r\n[UNK] \n[CLS]\n\u3000[SEP]\n[MASK]\n\na\nb\na"));
  CHECK(vocabulary.size() == 9);
  CHECK(vocabulary.token(5).empty());
  CHECK(vocabulary.find("b") == 7);
  CHECK(vocabulary.find("a") == 8);  // the last of equal tokens, as in Google's load_vocab
  CHECK(vocabulary.find("c") == -1);
  CHECK(vocabulary.special_ids() == std::array<int32_t, 5>{0, 1, 2, 3, 4});
  CHECK(vocabulary.hash() == Vocabulary(vocabulary.tokens()).hash());
  CHECK(vocabulary.hash() != Vocabulary(with_special({"a"})).hash());
}

TEST_CASE("A double array finds its keys and nothing else", "[unit]") {
  std::mt19937 random(11);
  std::vector<std::string> keys;
  for (int i = 0; i < 3000; ++i) {
    std::string key(1 + random() % 6, '\0');
    for (char& byte : key) byte = static_cast<char>(random() % 5 == 0 ? random() % 256 : 'a' + random() % 4);
    keys.push_back(key);
  }
  std::ranges::sort(keys);
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  std::vector<std::pair<std::string_view, int32_t>> even;
  for (size_t i = 0; i < keys.size(); i += 2) even.emplace_back(keys[i], static_cast<int32_t>(i));
  const DoubleArray trie(even);
  for (size_t i = 0; i < keys.size(); ++i) {
    int32_t node = DoubleArray::kRoot;
    for (const char byte : keys[i]) {
      if (node != DoubleArray::kNone) node = trie.next(node, static_cast<unsigned char>(byte));
    }
    const int32_t found = node == DoubleArray::kNone ? DoubleArray::kNone : trie.value(node);
    REQUIRE(found == (i % 2 == 0 ? static_cast<int32_t>(i) : DoubleArray::kNone));
  }
}

}  // namespace bert
