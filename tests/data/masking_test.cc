#include "data/examples/masking.h"

#include <algorithm>
#include <cmath>

#include "data/random/counter_random.h"
#include "data/random/py_random.h"
#include "tests/testing.h"

namespace bert {
namespace {

/// Words a0 .. a99, each with the piece ##s; ids 5 .. 104, then ##s.
constexpr int32_t kFirstToken = 5, kNumWords = 100, kPiece = kFirstToken + kNumWords;

std::shared_ptr<const MaskingVocabulary> vocabulary() {
  std::vector<std::string> tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (int i = 0; i < kNumWords; ++i) tokens.push_back("a" + std::to_string(i));
  tokens.emplace_back("##s");
  return std::make_shared<const MaskingVocabulary>(WordPieceTokenizer(Vocabulary(tokens)));
}

/// [CLS], words, [SEP], words, [SEP]; every third word has two tokens.
std::vector<int32_t> sequence(PyRandom& random, size_t tokens) {
  std::vector<int32_t> ids = {2};
  while (ids.size() < tokens) {
    ids.push_back(static_cast<int32_t>(random.randint(kFirstToken, kPiece - 1)));
    if (ids.size() % 3 == 0) ids.push_back(kPiece);
    if (ids.size() == tokens / 2) ids.push_back(3);
  }
  ids.push_back(3);
  return ids;
}

TEST_CASE("Masked tokens keep to their number, and their ids restore the sequence", "[unit][masking]") {
  PyRandom random(1);
  for (const int64_t max_ngram : {1, 3, 10}) {
    for (const bool whole_words : {false, true}) {
      Masker masker(vocabulary(),
                    {.max_predictions_per_seq = 12, .do_whole_word_mask = whole_words, .max_ngram = max_ngram});
      for (int round = 0; round < 200; ++round) {
        const auto before = sequence(random, static_cast<size_t>(random.randint(3, 120)));
        auto after = before;
        const auto masked = masker.mask(after, random);
        const auto budget =
            std::min(12L, std::max(1L, std::lround(std::nearbyint(static_cast<double>(before.size()) * 0.15))));
        CHECK(static_cast<int64_t>(masked.size()) <= budget);
        if (!whole_words)
          CHECK(static_cast<int64_t>(masked.size()) ==
                std::min<int64_t>(budget, static_cast<int64_t>(before.size()) - std::ranges::count(before, 3) - 1));
        for (size_t i = 0; i < masked.size(); ++i) {
          if (i > 0) REQUIRE(masked[i].position > masked[i - 1].position);
          const auto position = static_cast<size_t>(masked[i].position);
          REQUIRE(before[position] != 2);
          REQUIRE(before[position] != 3);
          after[position] = masked[i].id;
        }
        REQUIRE(after == before);
        if (!whole_words) continue;
        const auto is_masked = [&](size_t position) {
          return std::ranges::any_of(
              masked, [&](const MaskedToken& token) { return static_cast<size_t>(token.position) == position; });
        };
        for (size_t i = 1; i < before.size(); ++i) {
          if (before[i] == kPiece) REQUIRE(is_masked(i) == is_masked(i - 1));
        }
      }
    }
  }
}

TEST_CASE("Replacements are 80 % masks, 10 % the token, 10 % any token", "[unit][masking]") {
  PyRandom random(2);
  Masker masker(vocabulary(), {.max_predictions_per_seq = 20});
  int64_t masks = 0, kept = 0, all = 0;
  for (int round = 0; round < 1000; ++round) {
    auto ids = sequence(random, 128);
    for (const auto& [position, id] : masker.mask(ids, random)) {
      ++all;
      masks += ids[static_cast<size_t>(position)] == 4;
      kept += ids[static_cast<size_t>(position)] == id;
    }
  }
  const auto n = static_cast<double>(all);
  const double vocabulary_size = kPiece + 1, sigma = std::sqrt(n);  // a random token may be [MASK], or the token itself
  CHECK(std::abs(static_cast<double>(masks) - n * (0.8 + 0.1 / vocabulary_size)) < 3 * sigma * 0.4);
  CHECK(std::abs(static_cast<double>(kept) - n * (0.1 + 0.1 / vocabulary_size)) < 3 * sigma * 0.3);
}

TEST_CASE("Spans have SpanBERT's lengths, and one choice of replacement", "[unit][masking]") {
  // The figures are computed from the geometric distribution with p = 0.2 cut at 10 (its mean is 3.8): with room for 10
  // tokens a sequence has 3.222 spans on average, the last one cut, with a standard deviation of 1.152, and a single span
  // with probability 0.0301. In 20,000 tokens two spans hardly ever touch.
  constexpr int kRounds = 4000;
  PyRandom random(3);
  Masker masker(vocabulary(), {.masked_lm_prob = 0.5, .max_predictions_per_seq = 10, .max_ngram = 10});
  const std::vector<int32_t> text(20000, kFirstToken);
  int64_t spans = 0, single = 0, mixed = 0;
  for (int round = 0; round < kRounds; ++round) {
    auto ids = text;
    const auto& masked = masker.mask(ids, random);
    REQUIRE(masked.size() == 10);
    int64_t runs = 1;
    for (size_t i = 1; i < masked.size(); ++i) {
      const auto is_mask = [&](size_t which) { return ids[static_cast<size_t>(masked[which].position)] == 4; };
      const bool together = masked[i].position == masked[i - 1].position + 1;
      runs += !together;
      mixed += together && is_mask(i) != is_mask(i - 1);
    }
    spans += runs;
    single += runs == 1;
  }
  CHECK(std::abs(static_cast<double>(spans) / kRounds - 3.222) < 3 * 1.152 / std::sqrt(kRounds));
  CHECK(std::abs(static_cast<double>(single) - 0.0301 * kRounds) < 3 * std::sqrt(0.0301 * kRounds));
  CHECK(mixed < 100);  // of 27,000 pairs: one random token in 106 is [MASK], and two spans may touch
}

TEST_CASE("Masks depend on sequence, configuration and random source alone", "[unit][masking]") {
  PyRandom random(4);
  const auto before = sequence(random, 100);
  const auto run = [&](uint64_t seed, int64_t max_ngram) {
    Masker masker(vocabulary(), {.max_ngram = max_ngram});
    auto other = before;
    PyRandom elsewhere(99);
    masker.mask(other, elsewhere);  // leaves no trace
    auto ids = before;
    PyRandom source(seed);
    const auto masked = masker.mask(ids, source);
    return std::pair(ids, masked);
  };
  CHECK(run(7, 1) == run(7, 1));
  CHECK(run(7, 1) != run(8, 1));
  CHECK(run(7, 10) == run(7, 10));
  CHECK(run(7, 10) != run(7, 1));
}

TEST_CASE("A sequence of special tokens has no mask", "[unit][masking]") {
  PyRandom random(5);
  for (const int64_t max_ngram : {1, 5}) {
    Masker masker(vocabulary(), {.max_ngram = max_ngram});
    std::vector<int32_t> ids = {2, 3, 3};
    CHECK(masker.mask(ids, random).empty());
  }
}

}  // namespace
}  // namespace bert
