#include <algorithm>
#include <bit>
#include <fstream>
#include <nlohmann/json.hpp>

#include "data/creation/document_tokenizer.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/support/examples_of_text.h"
#include "tests/support/text_file.h"
#include "tests/support/tfrecord_reader.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;
using testing::create_examples;
using testing::TemporaryDirectory;

std::string write_text(const TemporaryDirectory& directory, const std::string& name, const std::string& text) {
  std::ofstream(directory.path(name), std::ios::binary) << text;
  return directory.path(name);
}

WordPieceTokenizer toy_tokenizer(const std::vector<std::string>& words) {
  std::vector<std::string> tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  tokens.insert(tokens.end(), words.begin(), words.end());
  return WordPieceTokenizer(Vocabulary(tokens));
}

/// Sentences of each document, as tokens joined by spaces.
using Sentences = std::vector<std::vector<std::string>>;
Sentences sentences_of(const Corpus& corpus, const Tokenizer& tokenizer) {
  Sentences result;
  const TokenizedDocuments& documents = corpus.documents;
  for (size_t document = 0; document < documents.size(); ++document) {
    result.emplace_back();
    for (size_t i = documents.first_sentence(document); i < documents.first_sentence(document + 1); ++i) {
      std::vector<int32_t> ids;
      documents.append(documents.first_token(i), documents.first_token(i + 1), ids);
      std::string text;
      for (const int32_t id : ids) text += (text.empty() ? "" : " ") + tokenizer.vocabulary().token(id);
      result.back().push_back(text);
    }
  }
  return result;
}

Sentences read_text(const std::vector<std::string>& texts, const ReadOptions& options = {}) {
  const TemporaryDirectory directory;
  std::vector<std::string> paths;
  for (const std::string& text : texts) paths.push_back(write_text(directory, std::to_string(paths.size()), text));
  const WordPieceTokenizer tokenizer = toy_tokenizer({"a", "b", "c", "d"});
  return sentences_of(read_documents(paths, tokenizer, options), tokenizer);
}

TEST_CASE("create_examples makes the 60 examples that Google's script wrote", "[golden][pretraining]") {
  const std::string data = testing::shared_data();
  if (data.empty()) BERT_SKIP("Google's TFRecord is in ../shared/data, which is absent");
  const auto tokenizer = make_tokenizer(data + "/vocab/bert-base-uncased-vocab.txt");
  const Corpus corpus = read_documents({data + "/text/google_bert_sample_text.txt"}, *tokenizer, {});
  const auto want = testing::read_tfrecord(read_file(data + "/pretraining/google_sample_seed12345.tfrecord"));
  const auto examples = create_examples(corpus.documents, *tokenizer, {.random_seed = 12345, .dupe_factor = 5});
  REQUIRE(want.size() == 60);
  REQUIRE(examples.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    CAPTURE(i);
    const PretrainingExample& example = examples[i];
    testing::IntegerFeatures got;
    for (size_t t = 0; t < 128; ++t) {
      const bool real = t < example.input_ids.size();
      got["input_ids"].push_back(real ? example.input_ids[t] : 0);
      got["input_mask"].push_back(real);
      got["segment_ids"].push_back(real && t >= static_cast<size_t>(example.segment_b_start));
    }
    for (size_t m = 0; m < 20; ++m) {
      const bool real = m < example.masked_ids.size();
      got["masked_lm_positions"].push_back(real ? example.masked_positions[m] : 0);
      got["masked_lm_ids"].push_back(real ? example.masked_ids[m] : 0);
      got["masked_lm_weights"].push_back(std::bit_cast<uint32_t>(real ? 1.0f : 0.0f));
    }
    got["next_sentence_labels"].push_back(example.is_random_next);
    REQUIRE(got == want[i]);
  }
  // The twin: with one constant changed, the examples differ.
  CHECK(create_examples(corpus.documents, *tokenizer,
                        {.masked_lm_prob = 0.2, .random_seed = 12345, .dupe_factor = 5}) != examples);
}

PretrainingExample from_json(const nlohmann::json& json) {
  return {json["input_ids"], json["segment_b_start"], json["masked_positions"], json["masked_ids"],
          json["is_random_next"]};
}

TEST_CASE("create_examples equals an independent script in every setting", "[golden][pretraining]") {
  const auto golden = nlohmann::json::parse(read_file(testing::golden("pretraining_data.json")));
  const WordPieceTokenizer tokenizer{Vocabulary(golden["vocabulary"].get<std::vector<std::string>>())};
  const TemporaryDirectory directory;
  for (const auto& test : golden["cases"]) {
    CAPTURE(test["name"].get<std::string>());
    PretrainingDataConfig config;
    const auto& settings = test["config"];
    config.max_seq_length = settings["max_seq_length"];
    config.max_predictions_per_seq = settings["max_predictions_per_seq"];
    config.masked_lm_prob = settings["masked_lm_prob"];
    config.random_seed = settings["random_seed"];
    config.dupe_factor = settings["dupe_factor"];
    config.short_seq_prob = settings["short_seq_prob"];
    config.do_whole_word_mask = settings["do_whole_word_mask"];
    const Corpus corpus = read_documents({write_text(directory, "text", test["text"])}, tokenizer, {});
    const auto examples = create_examples(corpus.documents, tokenizer, config);
    REQUIRE(examples.size() == test["examples"].size());
    for (size_t i = 0; i < examples.size(); ++i) {
      CAPTURE(i);
      REQUIRE(examples[i] == from_json(test["examples"][i]));
      REQUIRE_NOTHROW(validate(examples[i], tokenizer.vocabulary().size(), config.max_seq_length));
    }
    // The twins: with any setting changed, the result differs from the golden.
    PretrainingDataConfig twin = config;
    twin.random_seed += 1;
    CHECK(create_examples(corpus.documents, tokenizer, twin) != examples);
    if (config.do_whole_word_mask) {
      twin = config;
      twin.do_whole_word_mask = false;
      CHECK(create_examples(corpus.documents, tokenizer, twin) != examples);
    }
  }
}

TEST_CASE("A lone document's next sentence is never called random", "[unit][pretraining]") {
  const TemporaryDirectory directory;
  const WordPieceTokenizer tokenizer = toy_tokenizer({"a", "b", "c", "d"});
  const Corpus corpus = read_documents({write_text(directory, "text", "a b\nc d\na\nb c d\na a\n")}, tokenizer, {});
  for (const PretrainingExample& example : create_examples(corpus.documents, tokenizer, {.max_seq_length = 8})) {
    CHECK_FALSE(example.is_random_next);
  }
}

TEST_CASE("Documents are separated by blank lines, however they are blank", "[unit][pretraining]") {
  const Sentences want = {{"a b", "c"}, {"d"}};
  CHECK(read_text({"a b\nc\n\nd\n"}) == want);
  CHECK(read_text({"\n\n\na b\nc\n\n \t \n\nd"}) == want);
  CHECK(read_text({"a b\r\nc\r\n\r\nd\r\n"}) == want);
  CHECK(read_text({"\ufeffa b\nc\n\nd\n"}) == want);
  CHECK(read_text({"\ufeffa b\r\nc\r\n\r\nd"}) == want);
  // White space of Python's str.strip: no-break space, next line, ideographic space.
  CHECK(read_text({"a b\nc\n\u00a0\u0085\u3000\nd\n"}) == want);
  // A line of dropped characters is not a blank line.
  CHECK(read_text({"a b\n\u200b\nc\n\nd\n"}) == want);
}

TEST_CASE("A document goes on from one file into the next, as in Google's script", "[unit][pretraining]") {
  CHECK(read_text({"a\n", "b\n\nc"}) == Sentences{{"a", "b"}, {"c"}});
  CHECK(read_text({"a\n\n", "\ufeffb\n"}) == Sentences{{"a"}, {"b"}});
  CHECK(read_text({"a\n", "\ufeff\nb\n"}) == Sentences{{"a", "b"}});
  ReadOptions prose;
  prose.reader.layout = Layout::kProse;
  CHECK(read_text({"A b. C\nd.\n", "\ufeffB c.\r\n\r\nD.\r\n"}, prose).size() == 3);
}

TEST_CASE("Input without text is a clear error", "[unit][pretraining]") {
  CHECK_THROWS_WITH(read_text({""}), Contains("no text"));
  CHECK_THROWS_WITH(read_text({"\n \n", "\r\n"}), Contains("no text") && Contains("and 1 more"));
  CHECK_THROWS_AS(read_text({}), DataError);
  const WordPieceTokenizer tokenizer = toy_tokenizer({});
  CHECK_THROWS_AS(read_documents({"/nonexistent/text"}, tokenizer, {}), InputMissing);
  CHECK_THROWS_AS(create_examples(TokenizedDocuments(5), tokenizer, {}), DataError);
}

TEST_CASE("Reading counts, and does not depend on the number of threads", "[unit][pretraining]") {
  const TemporaryDirectory directory;
  std::string text;
  for (int i = 0; i < 5000; ++i) {
    const std::string bad = i % 30 == 0 ? "\xff" : "";
    text += i % 7 == 6 ? "\n" : std::string(static_cast<size_t>(i % 5 + 1), 'a') + " b zz\u00e9 " + bad + " c\n";
  }
  const std::string path = write_text(directory, "text", text);
  const WordPieceTokenizer tokenizer = toy_tokenizer({"a", "b", "c", "##a"});
  ReadOptions options;
  int64_t told = 0, of = 0;
  options.progress = [&](int64_t bytes, int64_t of_bytes) {
    CHECK(bytes >= told);
    told = bytes;
    of = of_bytes;
  };
  const Corpus one = read_documents({path}, tokenizer, options);
  CHECK(told == static_cast<int64_t>(text.size()));
  CHECK(of == told);
  CHECK(one.statistics.documents == 715);
  CHECK(one.statistics.sentences == 5000 - 714);
  CHECK(one.statistics.unknown_tokens == one.statistics.sentences);
  CHECK(one.read.invalid_sequences == 167 - 24);  // multiples of 30, except those that are empty lines
  options.num_threads = 3;
  told = 0;
  CHECK(sentences_of(read_documents({path}, tokenizer, options), tokenizer) == sentences_of(one, tokenizer));
}

TEST_CASE("held_out takes the same documents for the same seed, and numbers go on over chunks", "[unit][pretraining]") {
  const auto held = held_out(0, 2000, 0.05, 7, true);
  const auto count = std::ranges::count(held, 1);
  CHECK(count > 60);  // binomial: 100 with a standard deviation of 10
  CHECK(count < 140);
  CHECK(held_out(0, 2000, 0.05, 7, true) == held);
  CHECK(held_out(0, 2000, 0.05, 8, true) != held);
  auto parts = held_out(0, 700, 0.05, 7, true);
  const auto rest = held_out(700, 1300, 0.05, 7, false);
  parts.insert(parts.end(), rest.begin(), rest.end());
  CHECK(parts == held);
  for (const double share : {0.001, 0.999}) {  // at least one document moves, and at least one stays
    const auto two = held_out(0, 2, share, 1, true);
    CHECK(two[0] + two[1] == 1);
  }
  CHECK(held_out(0, 1, 0.001, 1, true) == std::vector<uint8_t>{0});
  CHECK_THROWS_AS(held_out(0, 2, 1.0, 1, true), std::invalid_argument);
}

}  // namespace
}  // namespace bert
