#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "data/examples/example_maker.h"
#include "data/formats/shard.h"
#include "tests/support/mask_statistics.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;
using testing::restored;

constexpr int32_t kClsId = 2, kSepId = 3, kFirstId = 5;

std::shared_ptr<const MaskingVocabulary> vocabulary(int32_t words) {
  std::vector<std::string> tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (int32_t i = 0; i < words; ++i) tokens.push_back("w" + std::to_string(i));
  return std::make_shared<const MaskingVocabulary>(WordPieceTokenizer(Vocabulary(tokens)));
}

/// Documents whose tokens are 5, 6, 7 and so on over all documents, so that every token tells its place.
TokenizedDocuments counted_documents(const std::vector<std::vector<int>>& sentence_lengths, int64_t vocab_size) {
  TokenizedDocuments documents(vocab_size);
  int32_t next = kFirstId;
  for (const auto& lengths : sentence_lengths) {
    for (const int length : lengths) {
      std::vector<int32_t> ids(static_cast<size_t>(length));
      std::iota(ids.begin(), ids.end(), next);
      next += length;
      documents.add_sentence(ids);
    }
    documents.end_document();
  }
  return documents;
}

std::vector<std::vector<int>> random_lengths(PyRandom& random, int64_t most) {
  std::vector<std::vector<int>> result(200);
  for (auto& lengths : result) {
    lengths.resize(static_cast<size_t>(random.randint(1, 10)));
    for (int& length : lengths) length = static_cast<int>(random.randint(1, most));
  }
  return result;
}

std::vector<PretrainingExample> make(const TokenizedDocuments& documents, const PretrainingDataConfig& config,
                                     int32_t words = 70000, int64_t* lone = nullptr) {
  std::vector<uint32_t> which(documents.size());
  std::iota(which.begin(), which.end(), 0U);
  ExampleMaker maker(documents, which, vocabulary(words), config, 1);
  maker.make();
  std::vector<PretrainingExample> examples(maker.size());
  for (size_t i = 0; i < examples.size(); ++i) {
    maker.get(i, examples[i]);
    validate(examples[i], 2 * words, config.max_seq_length);
  }
  if (lone != nullptr) *lone = maker.lone_tokens();
  return examples;
}

TEST_CASE("The objective is a parameter of a shard, and its absence means nsp", "[unit][objectives]") {
  CHECK(objective_of(Parameters{}) == Objective::kNsp);
  CHECK(objective_of(Parameters{{"objective", "sop"}}) == Objective::kSop);
  ShardManifest manifest;
  manifest.parameters = {{"dupe_factor", "1"}, {"objective", "mlm"}};
  CHECK(objective_of(manifest) == Objective::kMlm);
  CHECK_THROWS_WITH(objective_of(Parameters{{"objective", "electra"}}), Contains("electra"));
  for (const auto& [name, value] : parameters_of(PretrainingDataConfig{})) {
    if (name == "objective") CHECK(value == "nsp");
    if (name == "masking") CHECK(value == "static");
  }
}

TEST_CASE("Full sequences hold every token once, end with sentences, and keep documents apart", "[unit][objectives]") {
  PyRandom random(1);
  for (const int64_t most : {20, 150}) {  // without and with sentences that are longer than a sequence
    const auto lengths = random_lengths(random, most);
    const TokenizedDocuments documents = counted_documents(lengths, 100000);
    const PretrainingDataConfig config{.max_seq_length = 64, .dupe_factor = 1, .objective = Objective::kMlm};
    std::set<int32_t> sentence_ends, document_starts;
    int32_t next = kFirstId;
    for (const auto& document : lengths) {
      document_starts.insert(next);
      for (const int length : document) sentence_ends.insert(next += length);
    }
    std::vector<uint8_t> seen(static_cast<size_t>(next));
    int64_t full = 0;
    for (const PretrainingExample& example : make(documents, config)) {
      CHECK_FALSE(example.is_random_next);
      REQUIRE(example.segment_b_start == static_cast<int32_t>(example.input_ids.size()));
      const auto ids = restored(example);
      REQUIRE(ids.front() == kClsId);
      REQUIRE(ids.back() == kSepId);
      REQUIRE(ids.size() > 2);
      for (size_t i = 1; i + 1 < ids.size(); ++i) {
        if (i > 1) REQUIRE(ids[i] == ids[i - 1] + 1);
        if (i > 1) REQUIRE_FALSE(document_starts.contains(ids[i]));
        REQUIRE_FALSE(seen[static_cast<size_t>(ids[i])]);
        seen[static_cast<size_t>(ids[i])] = 1;
      }
      const bool whole = sentence_ends.contains(ids[ids.size() - 2] + 1);
      if (!whole) REQUIRE(ids.size() == 64);  // a cut sentence fills its sequence
      full += ids.size() == 64;
    }
    CHECK(std::count(seen.begin() + kFirstId, seen.end(), 0) == 0);
    if (most == 150) CHECK(full > 100);
  }
}

TEST_CASE("The order of sentences: neighbours, swapped in half of the examples", "[unit][objectives]") {
  PyRandom random(2);
  const auto lengths = random_lengths(random, 25);
  const TokenizedDocuments documents = counted_documents(lengths, 100000);
  const PretrainingDataConfig config{
      .max_seq_length = 1000, .dupe_factor = 5, .short_seq_prob = 0, .objective = Objective::kSop};
  int64_t lone = 0;
  const auto examples = make(documents, config, 70000, &lone);
  const auto one_token =
      std::ranges::count_if(lengths, [](const auto& document) { return document == std::vector<int>{1}; });
  CHECK(lone == 5 * one_token);
  CHECK(static_cast<int64_t>(examples.size()) == 5 * (200 - one_token));  // documents fit in one example
  int64_t swapped = 0;
  for (const PretrainingExample& example : examples) {
    const auto ids = restored(example);
    const auto b = static_cast<size_t>(example.segment_b_start);
    const int32_t a_first = ids[1], a_last = ids[b - 2], b_first = ids[b], b_last = ids[ids.size() - 2];
    swapped += example.is_random_next;
    REQUIRE((example.is_random_next ? b_last + 1 == a_first : a_last + 1 == b_first));
  }
  const auto n = static_cast<double>(examples.size());
  CHECK(std::abs(static_cast<double>(swapped) - n / 2) < 3 * std::sqrt(n / 4));
}

TEST_CASE("Examples without stored masks have the tokens of the text", "[unit][objectives]") {
  PyRandom random(3);
  const TokenizedDocuments documents = counted_documents(random_lengths(random, 25), 100000);
  for (const Objective objective : {Objective::kNsp, Objective::kMlm, Objective::kSop}) {
    const PretrainingDataConfig config{
        .max_seq_length = 64, .dupe_factor = 1, .objective = objective, .masking = StoredMasks::kNone};
    for (const PretrainingExample& example : make(documents, config)) {
      REQUIRE(example.masked_ids.empty());
      REQUIRE(std::ranges::count(example.input_ids, 4) == 0);
    }
  }
}

TEST_CASE("Packed examples keep wide ids, long segments and every kind of mask", "[unit][objectives]") {
  // 65,000 tokens in a sentence: positions and counts of several bytes; a vocabulary above 65,536.
  const TokenizedDocuments documents = counted_documents({{65000}, {40000, 25000}}, 200000);
  const PretrainingDataConfig config{.max_seq_length = 65535,
                                     .max_predictions_per_seq = 65535,
                                     .masked_lm_prob = 0.9,
                                     .dupe_factor = 2,
                                     .short_seq_prob = 0,
                                     .objective = Objective::kMlm};
  const auto examples = make(documents, config, 140000);
  REQUIRE(examples.size() == 4);
  for (const PretrainingExample& example : examples) {
    const auto ids = restored(example);
    REQUIRE(ids.size() == 65002);
    for (size_t i = 2; i + 1 < ids.size(); ++i) REQUIRE(ids[i] == ids[i - 1] + 1);
    CHECK(example.masked_ids.size() == 58502);
    CHECK(*std::ranges::max_element(example.input_ids) > 131000);
  }
}

}  // namespace
}  // namespace bert
