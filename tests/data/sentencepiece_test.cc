#include <atomic>
#include <initializer_list>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "data/io/error.h"
#include "data/io/files.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/support/sentencepiece_model.h"
#include "tests/testing.h"

using bert::testing::Contains;
using bert::testing::shared_data;
using bert::testing::TemporaryDirectory;

namespace bert {

// Expected ids are those of `spm_encode --model=test_model.model --output_format=id` (sentencepiece 0.1.97).
TEST_CASE("A SentencePiece model gives spm_encode's ids, with offsets", "[unit]") {
  if (shared_data().empty()) BERT_SKIP("needs ../shared/data/sentencepiece");
  const auto tokenizer = make_tokenizer(shared_data() + "/sentencepiece/test_model.model");
  const Encoding encoding = tokenizer->encode_with_offsets("Hello world.  I saw\xFF");
  CHECK(encoding.ids == std::vector<int32_t>{151, 88, 21, 887, 6, 9, 459});
  CHECK(encoding.spans == std::vector<TextSpan>{{0, 2}, {2, 4}, {4, 5}, {5, 11}, {11, 12}, {12, 15}, {15, 19}});
  CHECK(encoding.invalid_sequences == 1);
  CHECK(tokenizer->decode(encoding.ids) == "Hello world. I saw");
  CHECK_FALSE(tokenizer->is_continuation(887));
  CHECK(tokenizer->is_continuation(88));

  const std::string botchan = read_file(shared_data() + "/sentencepiece/botchan.txt");
  std::vector<int32_t> ids;
  for (size_t begin = 0; begin < botchan.size();) {
    const size_t end = std::min(botchan.find('\n', begin), botchan.size());
    tokenizer->encode(std::string_view(botchan).substr(begin, end - begin), ids);
    begin = end + 1;
  }
  CHECK(ids.size() == 95515);
  CHECK(std::accumulate(ids.begin(), ids.end(), int64_t{0}) == 13958322);
}

TEST_CASE("Special tokens that a SentencePiece model lacks follow its own", "[unit]") {
  if (shared_data().empty()) BERT_SKIP("needs ../shared/data/sentencepiece");
  const auto tokenizer = SentencePieceTokenizer::load(shared_data() + "/sentencepiece/test_model.model");
  const Vocabulary& vocabulary = tokenizer->vocabulary();
  CHECK(vocabulary.size() == 1004);
  CHECK(vocabulary.special_ids() == std::array<int32_t, 5>{1000, 0, 1001, 1002, 1003});
  CHECK(tokenizer->decode({1001, 151, 88, 21, 1002}) == "Hello");
  const SentencePieceTokenizer again(tokenizer->model(), "copy");
  CHECK(again.vocabulary().hash() == vocabulary.hash());
}

TEST_CASE("SentencePiece survives long words and damaged models", "[unit]") {
  if (shared_data().empty()) BERT_SKIP("needs ../shared/data/sentencepiece");
  const std::string path = shared_data() + "/sentencepiece/test_model.model";
  const auto tokenizer = SentencePieceTokenizer::load(path);
  std::string text;
  while (text.size() < 400'000) text += "\u00E9a";  // above the 300 KB at which the library crashes
  const Encoding encoding = tokenizer->encode_with_offsets(text);
  REQUIRE(!encoding.spans.empty());
  CHECK(encoding.spans.back().end == static_cast<int64_t>(text.size()));
  CHECK_THROWS_AS(SentencePieceTokenizer(tokenizer->model().substr(0, 100'000), "cut.model"), DataError);
  CHECK_THROWS_WITH(SentencePieceTokenizer("", "empty.model"), Contains("empty.model: not a SentencePiece model"));
  CHECK_THROWS_AS(make_tokenizer("/absent/x.model"), InputMissing);
}

TEST_CASE("Rules of a SentencePiece model that lead outside of themselves are refused", "[unit]") {
  using testing::NormalizationRules;
  using testing::sentencepiece_model;
  const SentencePieceTokenizer tokenizer(sentencepiece_model(), "whole.model");
  CHECK(tokenizer.tokens("The cat") == std::vector<std::string>{"\xe2\x96\x81the", "\xe2\x96\x81", "cat"});
  const auto refused = [](const NormalizationRules& rules) {
    for (const size_t rules_field : {3, 5}) {
      CHECK_THROWS_WITH(SentencePieceTokenizer(sentencepiece_model(rules, rules_field), "bad.model"),
                        Contains("bad.model: not a SentencePiece model (its rules"));
    }
  };
  NormalizationRules far_root, far_key, far_end, far_text, unended;
  far_root.units[0] = uint32_t{1} << 30;
  refused(far_root);
  const uint32_t key = NormalizationRules::kBlock ^ NormalizationRules::kKey;
  far_key.units[key] |= 1 << 9;  // makes its offset 256 times as large
  refused(far_key);
  far_end.units.resize(NormalizationRules::kBlock + 1);
  refused(far_end);
  far_text.units[NormalizationRules::kEnd] |= 2;
  refused(far_text);
  unended.texts.pop_back();
  refused(unended);
  // After a group, which protobuf skips as an unknown field.
  CHECK_THROWS_AS(SentencePieceTokenizer("\x33\x34" + sentencepiece_model(far_key), "bad.model"), DataError);
}

// Part of tests/run.sh --tsan, which sees unsynchronised writes of our code.
TEST_CASE("Threads share a tokenizer", "[unit]") {
  const SentencePieceTokenizer pieces(testing::sentencepiece_model(), "whole.model");
  const WordPieceTokenizer words(
      Vocabulary({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat", "."}),
      {.match_special_tokens = true});
  const std::string text = "The cats sat. [MASK] caf\u00E9 \xFF";
  for (const Tokenizer* tokenizer : std::initializer_list<const Tokenizer*>{&pieces, &words}) {
    const Encoding want = tokenizer->encode_with_offsets(text);
    const std::string decoded = tokenizer->decode(want.ids);
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int round = 0; round < 200; ++round) {
          const Encoding got = tokenizer->encode_with_offsets(text);
          if (got.ids != want.ids || got.spans != want.spans || tokenizer->encode(text) != want.ids ||
              tokenizer->decode(got.ids) != decoded) {
            ++wrong;
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(want.ids.size() > 4);
    CHECK(wrong == 0);
  }
}

}  // namespace bert
