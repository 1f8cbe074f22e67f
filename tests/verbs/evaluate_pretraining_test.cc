// bert evaluate pretraining gives transformers' figures: tests/golden/pretraining_scores.py.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/inference/pretrained.h"
#include "app/system/exit_codes.h"
#include "app/verbs/model/pretraining_examples.h"
#include "app/verbs/verbs.h"
#include "data/formats/shard.h"
#include "tests/support/command_testing.h"
#include "tests/support/hf_golden.h"
#include "tests/support/text_file.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Approx;
using bert::testing::CommandResult;
using bert::testing::Contains;
using bert::testing::hf_directory;
using bert::testing::TemporaryDirectory;
using bert::testing::write_text;
using nlohmann::json;

namespace {

constexpr double kRelative = 1e-6;  // fp32 here and there

json golden_scores() { return json::parse(std::ifstream(bert::testing::golden("pretraining_scores.json"))); }

CommandResult evaluate(const std::string& checkpoint, const std::string& dataset,
                       std::vector<std::string> options = {}) {
  options.insert(options.begin(), {"evaluate", "pretraining", "--checkpoint", checkpoint, "--dataset", dataset});
  return bert::testing::run_command(evaluate_torch_command, options);
}

/// The JSON object on the last line.
json result_of(const CommandResult& result) {
  CAPTURE(result.err);
  REQUIRE(result.code == kOk);
  const std::string text = result.out.substr(0, result.out.size() - 1);
  return json::parse(text.substr(text.rfind('\n') + 1));
}

json scores_of(const CommandResult& result) { return result_of(result)["models"][0]; }

/// Writes the examples [begin, end) of the golden for the vocabulary of `model`.
void write_examples(const std::string& path, const std::string& model, size_t begin, size_t end) {
  const json golden = golden_scores();
  const Pretrained pretrained = load_pretrained(model);
  const Vocabulary& vocabulary = pretrained.tokenizer->vocabulary();
  ShardOptions options;
  options.vocab_size = vocabulary.size();
  options.max_seq_length = 10;
  options.vocabulary_checksum = vocabulary.hash();
  ShardWriter writer(path, options);
  for (size_t i = begin; i < end; ++i) {
    const json& golden_example = golden["examples"][i];
    PretrainingExample example;
    example.input_ids = golden_example["ids"].get<std::vector<int32_t>>();
    example.segment_b_start = golden_example["segment_b"];
    example.is_random_next = golden_example["random"] == 1;
    for (const json& masked : golden_example["masked"]) {
      example.masked_positions.push_back(masked[0]);
      example.masked_ids.push_back(masked[1]);
    }
    writer.add(example);
  }
  writer.commit();
}

void check_near(const json& figures, const char* key, const json& expected) {
  INFO(key);
  CHECK(figures[key].get<double>() == Approx(expected.get<double>()).epsilon(kRelative));
}

}  // namespace

TEST_CASE("A word of more tokens than an example has is in no piece", "[unit][evaluate]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("text.txt");
  write_text(path, "a b " + std::string(30, 'z') + " c\n");
  const std::shared_ptr<const Tokenizer> tokenizer = std::make_shared<WordPieceTokenizer>(
      Vocabulary({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "z", "##z"}, "v.txt"));
  const TextPieces pieces = pieces_of_files({path}, {tokenizer}, 10, 0);
  CHECK(pieces.words_left_out == 1);
  REQUIRE(pieces.pieces.size() == 1);
  CHECK(pieces.pieces[0].text == "a b c");
  CHECK(pieces.pieces[0].words == 3);
}

TEST_CASE("bert evaluate pretraining gives transformers' losses on the masks of shards", "[unit][evaluate]") {
  const TemporaryDirectory directory;
  const std::string model = hf_directory(directory), masked_lm = hf_directory(directory, "masked_lm");
  const std::string shards = directory.path("shards");
  std::filesystem::create_directories(shards);
  write_examples(shards + "/a.shard", model, 0, 1);
  write_examples(shards + "/b.shard", model, 1, 3);
  const json golden = golden_scores();

  const CommandResult answer = evaluate(model + "," + masked_lm, shards);
  const json result = result_of(answer);
  CHECK(result["examples"] == 3);
  CHECK(result["mask_seed"].is_null());
  const json& figures = result["models"][0];
  for (const char* key : {"mlm_loss", "mlm_accuracy", "perplexity", "nsp_loss", "nsp_accuracy", "pseudo_perplexity"})
    check_near(figures, key, golden[key]);
  CHECK(figures["masked_tokens"] == 7);
  CHECK(figures["pseudo_words"] == golden["pseudo_words"]);
  CHECK(figures["pseudo_tokens"] == golden["pseudo_tokens"]);
  check_near(figures["by_source"][0], "mlm_loss", golden["loss_of_first_example"]);
  CHECK(figures["by_source"][1]["masked_tokens"] == 5);

  // "cat" (9) without "##s" occurs twice; the words of the other masked tokens, "cat ##s" too, occur once.
  const json& once = figures["by_frequency"][0];
  const json& more = figures["by_frequency"][1];
  CHECK(once["occurrences"] == "1");
  CHECK(once["masked_tokens"] == 6);
  CHECK(more["occurrences"] == "2-9");
  CHECK(more["masked_tokens"] == 1);
  check_near(more, "mlm_loss", golden["losses"][1][1]);

  // The second model, without the pair's head and in fp16, stands beside the first in the table.
  CHECK_FALSE(result["models"][1].contains("nsp_loss"));
  CHECK(result["models"][1]["mlm_loss"].get<double>() == Approx(golden["mlm_loss"].get<double>()).epsilon(1e-2));
  CHECK_THAT(answer.out, Contains("[2] " + masked_lm));
}

TEST_CASE("bert evaluate pretraining gives transformers' pseudo-perplexity of a word of text", "[unit][evaluate]") {
  const TemporaryDirectory directory;
  const std::string model = hf_directory(directory);
  const json golden = golden_scores();
  const auto first = golden["text"][0].get<std::string>(), second = golden["text"][1].get<std::string>();
  // Both texts fill an example of 10 tokens, so they are the examples in every kind of file.
  const std::string plain = directory.path("text.txt"), lines = directory.path("text.jsonl");
  write_text(plain, first + "\n\n" + second + "\n");
  write_text(lines, json({{"text", first}}).dump() + "\n" + json({{"text", second}}).dump() + "\n");
  for (const std::string& path : {plain, lines}) {
    CAPTURE(path);
    const json figures = scores_of(evaluate(model, path));
    check_near(figures, "pseudo_perplexity", golden["text_pseudo_perplexity"]);
    CHECK(figures["pseudo_words"] == golden["text_pseudo_words"]);
  }
  CHECK_FALSE(scores_of(evaluate(model, plain, {"--pseudo-examples", "0"})).contains("pseudo_perplexity"));
  CHECK(result_of(evaluate(model, plain, {"--max-examples", "1"}))["examples"] == 1);
}

TEST_CASE("bert evaluate pretraining draws the pairs of text that bert data create makes", "[unit][evaluate]") {
  const TemporaryDirectory directory;
  const json golden = golden_scores();
  const std::string model = hf_directory(directory), masked_lm = hf_directory(directory, "masked_lm"),
                    text = directory.path("text.txt"), lines = directory.path("text.jsonl");
  std::string plain, rows;
  for (const json& document : golden["pair_documents"]) {
    plain += document.get<std::string>() + "\n\n";
    rows += json({{"text", document}}).dump() + "\n";
  }
  write_text(text, plain);
  write_text(lines, rows);
  const json result = result_of(evaluate(model + "," + masked_lm, text));
  check_near(result["models"][0], "nsp_loss", golden["text_nsp_loss"]);
  check_near(result["models"][0], "nsp_accuracy", golden["text_nsp_accuracy"]);
  CHECK_FALSE(result["models"][1].contains("nsp_loss"));

  for (const std::string objective : {"nsp", "sop"}) {
    CAPTURE(objective);
    bert::testing::patch_json(model + "/config.json", {{"objective", objective}});
    const std::string shard = directory.path(objective + ".shard");
    const CommandResult created = bert::testing::run_command(
        data_command, {"data",          "create", "--input",          text,      "--vocab",          model,
                       "--output",      shard,    "--objective",      objective, "--masking",        "none",
                       "--dupe-factor", "1",      "--short-seq-prob", "0",       "--max-seq-length", "10",
                       "--random-seed", "3",      "--layout",         "prose"});
    CAPTURE(created.err);
    REQUIRE(created.code == kOk);
    const json want = scores_of(evaluate(model, shard, {"--mask-seed", "3"}));
    for (const std::string& path : {text, lines}) {
      const json got = scores_of(evaluate(model, path, {"--mask-seed", "3"}));
      for (const char* figure : {"_loss", "_accuracy"})
        CHECK(got.at(objective + figure) == want.at(objective + figure));
    }
  }
  bert::testing::patch_json(model + "/config.json", {{"objective", "nsp"}});
  write_text(text, "The cat sat. A cat sat.");
  const CommandResult one = evaluate(model, text);
  CHECK_FALSE(scores_of(one).contains("nsp_loss"));
  CHECK_THAT(one.err, Contains("next sentences need a text of two documents"));
}

TEST_CASE("bert evaluate pretraining draws the same masks for all models of a vocabulary", "[unit][evaluate]") {
  const TemporaryDirectory directory;
  const std::string model = hf_directory(directory), shard = directory.path("a.shard");
  write_examples(shard, model, 0, 3);
  const json result = result_of(evaluate(model + "," + model, shard, {"--mask-seed", "7"}));
  CHECK(result["mask_seed"] == 7);
  CHECK(result["models"][0] == result["models"][1]);
  CHECK(result["models"][0]["masked_tokens"] == 4);  // 15 % of 10, 9 and 7: 2, 1 and 1
  bool differs = false;
  for (const char* seed : {"8", "9", "10"})
    differs = differs ||
              scores_of(evaluate(model, shard, {"--mask-seed", seed}))["mlm_loss"] != result["models"][0]["mlm_loss"];
  CHECK(differs);
}

TEST_CASE("bert evaluate pretraining refuses models that cannot answer", "[unit][evaluate]") {
  const TemporaryDirectory directory;
  const std::string model = hf_directory(directory), shard = directory.path("a.shard");
  write_examples(shard, model, 0, 3);
  const auto encoder = evaluate(hf_directory(directory, "encoder"), shard);
  CHECK(encoder.code == kBadData);
  CHECK_THAT(encoder.err, Contains("has no head for masked tokens"));

  const std::string other = directory.path("other.shard");
  ShardOptions options;
  options.vocab_size = 24;
  options.max_seq_length = 10;
  options.vocabulary_checksum = "0123456789abcdef0123456789abcdef";
  ShardWriter writer(other, options);
  PretrainingExample example;
  example.input_ids = {2, 5, 4, 3, 10, 3};
  example.segment_b_start = 4;
  example.masked_positions = {2};
  example.masked_ids = {9};
  writer.add(example);
  writer.commit();
  const auto words = evaluate(model, other);
  CHECK(words.code == kBadData);
  CHECK_THAT(words.err, Contains("made with another vocabulary"));

  CHECK(evaluate(model, directory.path("absent")).code == kInputMissing);
  write_text(directory.path("empty.txt"), "\n \n");
  CHECK(evaluate(model, directory.path("empty.txt")).code == kBadData);
  CHECK(evaluate(model, shard, {"--mask-seed", "x"}).code == kUsage);
}
