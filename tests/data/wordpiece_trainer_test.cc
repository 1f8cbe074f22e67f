#include "data/tokenizer/wordpiece_trainer.h"

#include <algorithm>
#include <string>
#include <vector>

#include "data/io/error.h"
#include "data/text/unicode.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/testing.h"

using bert::testing::Contains;

namespace bert {
namespace {

constexpr std::string_view kText =
    "Lower lowest low low; newer newest new new, wider widest wide wide. Slow slower slowest! Caf\u00E9 \u4E2D\u6587 "
    "now";

std::vector<std::string> train(const WordPieceTrainerConfig& config, std::string_view text = kText) {
  WordPieceTrainer trainer(config);
  trainer.add(text);
  return trainer.train();
}

bool has(const std::vector<std::string>& tokens, const std::string& token) {
  return std::ranges::count(tokens, token) == 1;
}

}  // namespace

TEST_CASE("A learnt vocabulary has its size, special tokens first, and every character", "[unit]") {
  const auto tokens = train({.vocab_size = 45, .character_coverage = 1.0});
  REQUIRE(tokens.size() == 45);
  CHECK(std::vector<std::string>(tokens.begin(), tokens.begin() + 5) ==
        std::vector<std::string>{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"});
  for (const char letter : std::string("lowernstidcaf")) {
    CHECK(has(tokens, std::string(1, letter)));
    CHECK(has(tokens, std::string("##") + letter));
  }
  CHECK(has(tokens, ";"));
  CHECK_FALSE(has(tokens, "##;"));  // punctuation and ideographs never continue a word
  CHECK(has(tokens, "\u4E2D"));
  CHECK_FALSE(has(tokens, "##\u4E2D"));
  const WordPieceTokenizer tokenizer{Vocabulary(tokens)};
  for (const std::string& token : tokenizer.tokens(kText)) CHECK(token != "[UNK]");
  CHECK(tokens == train({.vocab_size = 45, .character_coverage = 1.0}));
}

TEST_CASE("The most frequent pairs become the first pieces", "[unit]") {
  // Two characters in two forms each. After them (a, b) is the most frequent pair, and aab the most frequent word.
  const auto tokens = train({.vocab_size = 11, .character_coverage = 1.0}, "aab aab aab aab aab ab");
  REQUIRE(tokens.size() == 11);
  CHECK(has(tokens, "##b"));
  CHECK(has(tokens, "aab"));
  CHECK(WordPieceTokenizer{Vocabulary(tokens)}.tokens("aab") == std::vector<std::string>{"aab"});
}

TEST_CASE("A vocabulary size that the text cannot give is refused", "[unit]") {
  CHECK_THROWS_WITH(train({.vocab_size = 500}), Contains("tokens, not 500. Give more text, or ask for at most "));
  CHECK_THROWS_WITH(train({.vocab_size = 20}), Contains("20 tokens are too few"));
  CHECK_THROWS_WITH(train({.vocab_size = 6}, ""), Contains("the text gives 5 tokens, not 6"));
}

TEST_CASE("Sentencepiece's own marks are letters as any other", "[unit]") {
  for (const std::string mark : {"\u2581", "\u2585"}) {
    CAPTURE(mark);
    const auto in_place_of_b = [&](const std::string& word) {
      std::string result;
      for (const char c : word) result += c == 'b' ? mark : std::string(1, c);
      return result;
    };
    const std::string text = "aab aab aab aab aab ab ba bba";
    std::vector<std::string> want = train({.vocab_size = 12, .character_coverage = 1.0}, text);
    for (std::string& token : want) token = in_place_of_b(token);
    CHECK(train({.vocab_size = 12, .character_coverage = 1.0}, in_place_of_b(text)) == want);
    CHECK(has(want, "aa" + mark));
    const auto alone = train({.vocab_size = 500, .allow_fewer = true}, mark + mark + " " + mark);
    CHECK(has(alone, mark));
    CHECK(has(alone, mark + mark));
    CHECK(WordPieceTokenizer{Vocabulary(alone)}.tokens(mark + mark) == std::vector<std::string>{mark + mark});
  }
  // The text also contains the private-use characters that replace them.
  const std::string mixed = "\U000F0000\u2581 \U000F0000\u2581 \u2581\U000F0001 \U000F0000\u2585";
  const auto tokens = train({.vocab_size = 500, .character_coverage = 1.0, .allow_fewer = true}, mixed);
  for (const std::string word : {"\U000F0000\u2581", "\u2581\U000F0001", "\U000F0000\u2585"}) {
    CHECK(has(tokens, word));
  }
  for (const std::string& token : tokens) CHECK(token.find("\U000F0002") == std::string::npos);
}

TEST_CASE("Characters that do not fit are refused with the coverage that fits, or the rarest stay out", "[unit]") {
  // Each ideograph is one token: \u4e00 occurs forty times, \u4e01 thirty times, and thirty others once each.
  std::string text;
  const auto add = [&](char32_t character, int times) {
    for (int i = 0; i < times; ++i) append_utf8(character, text);
  };
  add(0x4E00, 40);
  add(0x4E01, 30);
  for (char32_t i = 0; i < 30; ++i) add(0x4E02 + i, 1);
  const WordPieceTrainerConfig config = {.vocab_size = 12, .character_coverage = 1.0};
  CHECK_THROWS_WITH(train(config, text), Contains("12 tokens are too few: the 32 characters") &&
                                             Contains("take 37. Ask for more tokens, or for a character coverage of "
                                                      "at most 0.75."));
  CHECK(train({.vocab_size = 12, .character_coverage = 0.75}, text).size() == 12);
  CHECK_THROWS_WITH(train({.vocab_size = 6, .character_coverage = 1.0}, text), Contains("Ask for more tokens."));

  WordPieceTrainerConfig fewer = config;
  fewer.allow_fewer_characters = true;
  WordPieceTrainer trainer(fewer);
  trainer.add(text);
  const auto tokens = trainer.train();
  CHECK(tokens.size() == 12);
  CHECK(has(tokens, "\u4E00"));
  CHECK(has(tokens, "\u4E01"));
  CHECK(trainer.characters().in_text == 32);
  CHECK(trainer.characters().in_vocabulary == 7);
  CHECK(trainer.characters().coverage == 0.75);
  fewer.vocab_size = 37;  // just enough room
  CHECK(train(fewer, text) == train({.vocab_size = 37, .character_coverage = 1.0}, text));
}

TEST_CASE("A small text gives what it has when fewer tokens are allowed", "[unit]") {
  const auto fewer = train({.vocab_size = 500, .allow_fewer = true});
  CHECK(fewer == train({.vocab_size = static_cast<int64_t>(fewer.size())}));
  CHECK_THROWS_AS(train({.vocab_size = static_cast<int64_t>(fewer.size()) + 1}), DataError);
  CHECK(train({.vocab_size = 45, .allow_fewer = true}).size() == 45);
  CHECK_THROWS_WITH(train({.vocab_size = 6, .allow_fewer = true}, ""), Contains("the text gives 5 tokens, not 6"));
}

TEST_CASE("Rare characters stay out at a lower coverage; case stays when asked for", "[unit]") {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "Abab ";
  text += "z";
  const auto tokens = train({.vocab_size = 10, .character_coverage = 0.99}, text);
  CHECK_FALSE(has(tokens, "z"));
  const auto cased = train({.vocab_size = 15, .tokenizer = {.do_lower_case = false}, .character_coverage = 0.99}, text);
  CHECK(has(cased, "A"));
  CHECK(has(cased, "Abab"));
}

TEST_CASE("Accents stay in lower case, and ideographs are learnt as letters, where the tokenizer has it so", "[unit]") {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "\u00C4b\u00E4b \u65E5\u672C\u3054 ";
  const auto usual = train({.vocab_size = 40, .allow_fewer = true}, text);
  CHECK(has(usual, "abab"));
  CHECK_FALSE(has(usual, "##\u672C"));
  const auto other = train(
      {.vocab_size = 40, .tokenizer = {.strip_accents = false, .tokenize_chinese_chars = false}, .allow_fewer = true},
      text);
  CHECK(has(other, "\u00E4b\u00E4b"));
  CHECK(has(other, "##\u672C"));
  CHECK(has(other, "\u65E5\u672C\u3054"));
  CHECK_FALSE(has(other, "abab"));
}

/// A text of 60 words in frequent use, each 40 times, among `rare` words that come once each.
std::string text_with_rare_words(int rare) {
  constexpr int kRounds = 40;
  std::string text;
  int made = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < 60; ++i)
      text += std::string("w") + static_cast<char>('a' + i / 10) + "x" + static_cast<char>('a' + i % 10) + " ";
    for (int i = 0; i < rare / kRounds; ++i, ++made) text += "q" + std::to_string(made) + " ";
  }
  return text;
}

TEST_CASE("Rare words are forgotten where words are many, and counted as left out", "[unit][vocab]") {
  constexpr int kRare = 4000;
  const std::string text = text_with_rare_words(kRare);
  WordPieceTrainerConfig config = {.vocab_size = 140, .character_coverage = 1.0, .allow_fewer = true};
  config.most_words = 200;
  WordPieceTrainer trainer(config);
  for (size_t at = 0; at < text.size();) {  // in pieces that end between words
    const size_t end = text.find(' ', std::min(at + 500, text.size() - 1)) + 1;
    trainer.add(std::string_view(text).substr(at, end - at));
    at = end;
    REQUIRE(trainer.words() <= 200);
  }
  const auto left_out = trainer.left_out();
  // All rare words but at most 140 that are counted at the end. No frequent one: it has a larger count.
  CHECK(left_out.words >= kRare - 140);
  CHECK(left_out.words <= kRare);
  CHECK(left_out.share == static_cast<double>(left_out.words) / (kRare + 40 * 60));
  const std::vector<std::string> tokens = trainer.train();
  CHECK(trainer.characters().in_text == 10 + 10 + 3);  // digits, a to j, and w, x, q
  const WordPieceTokenizer tokenizer{Vocabulary(tokens)};
  for (const char* word : {"waxa", "wbxc", "wfxj"}) CHECK(tokenizer.tokens(word) == std::vector<std::string>{word});
  for (const char* digit : {"0", "9", "##5"}) CHECK(has(tokens, digit));  // characters of forgotten words
  // Nothing changes below the limit.
  config.most_words = kRare + 60;
  config.most_learnt_words = kRare + 60;
  CHECK(train(config, text) == train({.vocab_size = 140, .character_coverage = 1.0, .allow_fewer = true}, text));
}

TEST_CASE("Only the most frequent words are learnt where words are many", "[unit][vocab]") {
  const std::string text = text_with_rare_words(400);
  WordPieceTrainerConfig config = {.vocab_size = 140, .character_coverage = 1.0, .allow_fewer = true};
  config.most_learnt_words = 60;
  WordPieceTrainer trainer(config);
  trainer.add(text);
  CHECK(trainer.left_out().words == 0);
  const std::vector<std::string> tokens = trainer.train();
  CHECK(trainer.left_out().words == 400);
  CHECK(trainer.left_out().share == 400.0 / (400 + 40 * 60));
  CHECK(trainer.words() == 0);
  for (const std::string& token : tokens) CHECK((token.size() < 2 || token.starts_with("##") || token.front() != 'q'));
  // A word of 16 characters or more counts as several.
  config.most_learnt_words = 2;
  const std::string word(40, 'a');
  WordPieceTrainer lengthy(config);
  lengthy.add(word + " " + word + " bb bb bc");
  static_cast<void>(lengthy.train());
  CHECK(lengthy.left_out().words == 2);
}

}  // namespace bert
