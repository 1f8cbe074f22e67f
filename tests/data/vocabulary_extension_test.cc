// More tokens for a vocabulary: what they save is counted by hand, and by the tokenizer for every possible piece.
#include "data/tokenizer/vocabulary_extension.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "data/text/unicode.h"
#include "data/tokenizer/vocabulary_rows.h"
#include "tests/testing.h"

namespace bert {
namespace {

using Tokens = std::vector<std::string>;

const Tokens kSpecial = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

Tokens with_special(const Tokens& more) {
  Tokens tokens = kSpecial;
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

WordPieceTokenizer tokenizer_of(const Tokens& tokens) { return WordPieceTokenizer(Vocabulary(tokens)); }

Tokens names(const std::vector<NewPiece>& pieces) {
  Tokens result;
  for (const NewPiece& piece : pieces) result.push_back(piece.token);
  return result;
}

/// The characters of `word`.
Tokens characters(std::string_view word) {
  Tokens result;
  while (!word.empty()) {
    const auto bytes = static_cast<size_t>(decode_utf8(word).bytes);
    result.emplace_back(word.substr(0, bytes));
    word.remove_prefix(bytes);
  }
  return result;
}

/// Every part of every word, as it begins the word and as it continues one.
std::set<std::string> all_parts(const CountedWords& words) {
  std::set<std::string> parts;
  for (const auto& [word, count] : words) {
    const Tokens letters = characters(word);
    for (size_t begin = 0; begin < letters.size(); ++begin) {
      std::string part = begin == 0 ? "" : "##";
      for (size_t end = begin; end < letters.size(); ++end) parts.insert(part += letters[end]);
    }
  }
  return parts;
}

}  // namespace

TEST_CASE("The words that save most tokens are added first", "[unit][vocabulary]") {
  Tokens tokens = with_special({});
  for (const char letter : std::string("coronavius")) {
    tokens.push_back({letter});
    tokens.push_back(std::string("##") + letter);
  }
  // corona has 6 tokens, alone 5 times and in coronavirus 2 times: 5 * 7 = 35 saved. virus saves 4 * 7, and
  // coronavirus, then of corona and 5 letters, 5 * 2. After that every word is one token.
  const CountedWords words = {{"coronavirus", 2}, {"virus", 7}, {"corona", 5}};
  const std::vector<NewPiece> pieces = pieces_to_add(tokenizer_of(tokens), words, 4, 2);
  CHECK(names(pieces) == Tokens{"corona", "virus", "coronavirus"});
  REQUIRE(pieces.size() == 3);
  CHECK(pieces[0].saved == 35);
  CHECK(pieces[1].saved == 28);
  CHECK(pieces[2].saved == 10);
  CHECK(names(pieces_to_add(tokenizer_of(tokens), words, 4, 3)) == Tokens{"corona", "virus"});
  const TokenCount before = count_tokens(tokenizer_of(tokens), words);
  CHECK(before.words == 14);
  CHECK(before.tokens == 11 * 2 + 5 * 7 + 6 * 5);
  CHECK(before.unknown == 0);
}

TEST_CASE("Every round takes the piece that really saves most, as trying all of them shows", "[unit][vocabulary]") {
  std::mt19937 random(5);
  for (int trial = 0; trial < 40; ++trial) {
    CAPTURE(trial);
    const Tokens letters = {"a", "b", "c", "\u00E9"};
    const auto draw = [&](size_t most) {
      std::string word;
      for (size_t i = 1 + random() % most; i > 0; --i) word += letters[random() % letters.size()];
      return word;
    };
    std::set<std::string> old, different;
    for (const std::string& letter : letters) {
      if (random() % 6 > 0) old.insert(letter);
      if (random() % 6 > 0) old.insert("##" + letter);
    }
    for (int i = 0; i < 5; ++i) old.insert((random() % 2 == 0 ? "##" : "") + draw(4));
    while (different.size() < 12) different.insert(draw(9));
    Tokens tokens = with_special({old.begin(), old.end()});
    CountedWords words;
    for (const std::string& word : different) words.emplace_back(word, 1 + random() % 5);
    const auto tokenizer = [&] { return WordPieceTokenizer(Vocabulary(tokens), {.strip_accents = false}); };
    const auto cost = [&] {
      const WordPieceTokenizer with = tokenizer();
      int64_t sum = 0;
      for (const auto& [word, count] : words) {
        const Tokens pieces = with.tokens(word);
        sum += count * (pieces == Tokens{"[UNK]"} ? std::ssize(characters(word)) + 1 : std::ssize(pieces));
      }
      return sum;
    };
    const std::vector<NewPiece> pieces = pieces_to_add(tokenizer(), words, 8, 1);
    CountedWords reversed(words.rbegin(), words.rend());
    CHECK(names(pieces_to_add(tokenizer(), reversed, 8, 1)) == names(pieces));
    for (const NewPiece& piece : pieces) {
      const int64_t before = cost();
      std::map<std::string, int64_t> saved;
      for (const std::string& part : all_parts(words)) {
        if (std::ranges::count(tokens, part) > 0) continue;
        tokens.push_back(part);
        saved[part] = before - cost();
        tokens.pop_back();
      }
      const int64_t most = std::ranges::max_element(saved, {}, [](const auto& each) { return each.second; })->second;
      CAPTURE(piece.token);
      REQUIRE(saved.contains(piece.token));
      REQUIRE(piece.saved == most);
      REQUIRE(saved[piece.token] == most);
      tokens.push_back(piece.token);
    }
    if (pieces.size() == 8) continue;
    const int64_t before = cost();
    for (const std::string& part : all_parts(words)) {  // nothing is left to save
      if (std::ranges::count(tokens, part) > 0) continue;
      tokens.push_back(part);
      CHECK(cost() >= before);
      tokens.pop_back();
    }
  }
}

TEST_CASE("New tokens take the places of unused ones if asked, and old ids stay", "[unit][vocabulary]") {
  const Tokens old = with_special({"[unused0]", "a", "[unused7]", "[unusedx]", "b"});
  const std::vector<NewPiece> pieces = {{"x", 3}, {"##y", 2}, {"z", 1}};
  CHECK(extended_vocabulary(old, pieces, true, 2) ==
        with_special({"x", "a", "##y", "[unusedx]", "b", "z", "[unused1]", "[unused2]"}));
  CHECK(extended_vocabulary(old, pieces, false, 1) ==
        with_special({"[unused0]", "a", "[unused7]", "[unusedx]", "b", "x", "##y", "z", "[unused1]"}));
}

TEST_CASE("A new token has the rows of the pieces that the old tokenizer gives it", "[unit][vocabulary]") {
  const WordPieceTokenizer old =
      tokenizer_of(with_special({"un", "##aff", "##able", "able", "[unused0]", "cafe", "-", "x", "a", "##a"}));
  const Tokens now = with_special(
      {"un", "##able", "##affable", "able", "unaffable", "Caf\u00E9", "able-x", "zzz", "##zzz", "##a", "##", "\u200B"});
  const VocabularyRows rows = vocabulary_rows(now, old);
  CHECK(rows.kept == 8);   // the special tokens, un, able, ##a
  CHECK(rows.moved == 1);  // ##able
  CHECK(rows.dropped == 6);
  CHECK(rows.unknown == 4);  // zzz, ##zzz, ##, and the zero-width space, which the tokenizer drops
  CHECK(rows.new_ids == std::vector<int32_t>{7, 9, 10, 11, 12, 13, 15, 16});
  const auto sources = [&](size_t id) { return rows.sources[id]; };
  CHECK(sources(6) == std::vector<int32_t>{7});
  CHECK(sources(7) == std::vector<int32_t>{6, 7});     // ##aff ##able
  CHECK(sources(9) == std::vector<int32_t>{5, 6, 7});  // un ##aff ##able
  CHECK(sources(10) == std::vector<int32_t>{10});      // cafe
  CHECK(sources(11) == std::vector<int32_t>{8, 11, 12});
  CHECK(sources(13) == std::vector<int32_t>{1});
  CHECK(rows.text() == "8 rows kept, 1 moved, 8 new (4 of them [UNK] so far), 6 dropped");
}

}  // namespace bert
