// The inputs of a run, checked against its configuration.
#include "app/train/run_inputs.h"

#include <fstream>

#include "app/system/errors.h"
#include "data/io/error.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;
using testing::TemporaryDirectory;
using testing::tiny;
using testing::write_counting_shard;

TEST_CASE("A shard made with other tokenizer settings is refused with both values", "[unit][run_inputs]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  const std::string cased = directory.path("cased.shard");
  write_counting_shard(cased, 10, 3, {{"do_lower_case", "false"}, {"max_input_chars_per_word", "100"}, {"seed", "1"}});
  config.data.train.push_back(cased);
  CHECK_THROWS_WITH(open_shards(config, "train", *load_tokenizer(config)),
                    Contains("data.do_lower_case: " + cased +
                             " was made with do_lower_case false, the configuration "
                             "says true") &&
                        Contains("set data.do_lower_case=false"));
  CHECK_THROWS_AS(open_shards(config, "train", *load_tokenizer(config)), ConfigError);
  config.data.tokenizer.do_lower_case = false;
  CHECK_THROWS_WITH(open_shards(config, "train", *load_tokenizer(config)),
                    Contains("made with max_input_chars_per_word 100, the configuration says 200"));
  config.data.tokenizer.max_input_chars_per_word = 100;
  CHECK(open_shards(config, "train", *load_tokenizer(config))->size() == 310);
  config.data.validation = {cased};
  config.data.tokenizer.match_special_tokens = true;  // the shard does not state this setting
  CHECK(open_shards(config, "validation", *load_tokenizer(config))->size() == 10);
}

TEST_CASE("A shard without a word on accents and ideographs has the usual ones", "[unit][run_inputs]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  const auto refusal = [&] {
    try {
      open_shards(config, "train", *load_tokenizer(config));
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string older = directory.path("older.shard"), german = directory.path("german.shard");
  write_counting_shard(older, 10, 3, {{"do_lower_case", "true"}});
  write_counting_shard(german, 10, 3, parameters_of(TokenizerConfig{.strip_accents = false}));
  config.data.train = {older};
  CHECK(refusal().empty());
  config.data.tokenizer.strip_accents = true;  // the default, spelled out
  CHECK(refusal().empty());
  config.data.tokenizer.strip_accents = false;
  CHECK_THAT(refusal(), Contains("data.strip_accents: " + older +
                                 " was made with strip_accents true, the configuration says false"));
  config.data.train = {german};
  CHECK(refusal().empty());
  config.data.tokenizer.tokenize_chinese_chars = false;
  CHECK_THAT(refusal(), Contains("was made with tokenize_chinese_chars true, the configuration says false"));
  config.data.tokenizer = {};
  CHECK_THAT(refusal(), Contains("set data.strip_accents=false"));
}

TEST_CASE("A shard of unknown vocabulary is taken with a warning, if the run's vocabulary has its ids",
          "[unit][run_inputs]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  const auto tokenizer = load_tokenizer(config);
  CHECK(unknown_vocabulary(*open_shards(config, "train", *tokenizer)).empty());
  const auto write = [&](int32_t id) {
    ShardWriter writer(directory.path("foreign.shard"),
                       {.vocab_size = id + 1, .max_seq_length = 4, .vocabulary_checksum = "", .parameters = {}});
    writer.add({{2, id, 3}, 2, {}, {}, false});
    writer.commit();
  };
  write(40);
  for (const bool alone : {true, false}) {
    config.data.train = {directory.path("foreign.shard")};
    if (!alone) config.data.train.push_back(directory.path("train.shard"));
    const auto shards = open_shards(config, "train", *tokenizer);
    CHECK(shards->vocab_size() == testing::kVocabulary);
    CHECK(shards->size() == (alone ? 1 : 301));
    CHECK_THAT(unknown_vocabulary(*shards), Contains("foreign.shard does not say which vocabulary"));
  }
  write(64);
  CHECK_THROWS_WITH(open_shards(config, "train", *tokenizer),
                    Contains("data.train: " + directory.path("foreign.shard") +
                             ": has id 64, and the vocabulary has 64 entries in " + config.data.vocab_file));
  CHECK_THROWS_AS(open_shards(config, "train", *tokenizer), ConfigError);
}

TEST_CASE("A model of one segment is refused for examples of two", "[unit][run_inputs]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.model.type_vocab_size = 1;
  CHECK_THROWS_WITH(open_shards(config, "train", *load_tokenizer(config)),
                    Contains("data.train: has pairs of segments, model.type_vocab_size is 1; set it to 2"));
}

TEST_CASE("A file that is missing is named with its key and with what makes it", "[unit][run_inputs]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  const auto tokenizer = load_tokenizer(config);
  const std::string absent = directory.path("absent");
  config.data.train = {absent};
  CHECK_THROWS_WITH(open_shards(config, "train", *tokenizer),
                    Contains("data.train: " + absent) && Contains("`bert data create` makes shards"));
  CHECK_THROWS_AS(open_shards(config, "train", *tokenizer), InputMissing);
  config.data.validation = {absent};
  CHECK_THROWS_WITH(open_shards(config, "validation", *tokenizer), Contains("data.validation: " + absent));
  config.data.vocab_file = absent;
  CHECK_THROWS_WITH(load_tokenizer(config),
                    Contains("data.vocab_file: " + absent) && Contains("`bert vocab` makes one"));
  CHECK_THROWS_AS(load_tokenizer(config), InputMissing);
}

TEST_CASE("Examples are known again by their content and number", "[unit][run_inputs]") {
  const TemporaryDirectory directory;
  const PretrainConfig config = tiny(directory, "run");
  const auto identity = [&](unsigned seed) {
    write_counting_shard(directory.path("some.shard"), 20, seed);
    return identity_of(PretrainingShards({directory.path("some.shard")}));
  };
  const DataIdentity one = identity(1), again = identity(1), other = identity(2);
  CHECK(one == again);
  CHECK(one.examples == 20);
  CHECK_FALSE(one == other);
  CHECK(compare_data({{"train", one}}, {{"train", again}, {"validation", other}}).empty());
  CHECK(compare_data({}, {{"train", one}}).empty());  // a checkpoint of a version that kept no identities
  const auto differences = compare_data({{"train", one}, {"validation", one}}, {{"train", other}});
  REQUIRE(differences.size() == 1);
  CHECK_THAT(differences.front(),
             Contains("data.train: was 20 examples, checksum " + one.content_checksum + ", now 20") &&
                 Contains(other.content_checksum));
}

TEST_CASE("A SentencePiece model stands where vocab.txt may", "[unit][run_inputs]") {
  if (testing::shared_data().empty()) BERT_SKIP("needs ../shared/data/sentencepiece");
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.data.vocab_file = testing::shared_data() + "/sentencepiece/test_model.model";
  CHECK_THROWS_WITH(load_tokenizer(config), Contains("model.vocab_size 64: ") && Contains("has 1004 tokens"));
  config.model.vocab_size = 1008;
  const auto tokenizer = load_tokenizer(config);
  CHECK_THROWS_WITH(open_shards(config, "train", *tokenizer), Contains("made with another vocabulary"));
}

}  // namespace
}  // namespace bert
