// bert predict --task rerank. A score is the sigmoid of the logit, which the same model gives as a number.
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/finetune/finetuning_run.h"
#include "app/inference/task_predictor.h"
#include "app/system/exit_codes.h"
#include "app/verbs/torch_verbs.h"
#include "app/verbs/verbs.h"
#include "data/io/files.h"
#include "tests/support/command_testing.h"
#include "tests/support/predict_command.h"
#include "tests/support/tiny_finetuning.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Approx;
using bert::testing::Contains;
using bert::testing::lines_of;
using bert::testing::predict;
using bert::testing::run_command;
using bert::testing::TemporaryDirectory;
using nlohmann::json;

namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// The answers of `bert predict --task rerank`.
std::vector<json> ranks(const std::string& checkpoint, std::vector<std::string> options) {
  options.insert(options.begin(), {"--task", "rerank"});
  const auto result = predict(checkpoint, options);
  CAPTURE(result.err);
  REQUIRE(result.code == kOk);
  return lines_of<json>(result.out);
}

/// Code and message of a command line that is refused.
std::string refusal(const std::string& checkpoint, const std::vector<std::string>& options) {
  const auto result = predict(checkpoint, options);
  CHECK(result.out.empty());
  return fmt::format("{} {}", result.code, result.err);
}

}  // namespace

TEST_CASE("bert predict ranks passages by their score, best first", "[unit][predict][finetune]") {
  const TemporaryDirectory directory;
  const FinetuneConfig config = bert::testing::tiny_task_of("text-regression", directory);
  REQUIRE(finetune(config, false) == kOk);
  const std::string model = config.run_directory, pairs = directory.path("pairs.jsonl");
  const std::vector<std::string> passages = {"7 8", "20 21", "30", "5 6 9"};
  // The logits of the pairs, as numbers.
  std::ofstream file(pairs);
  for (const std::string& passage : passages)
    file << json{{"q", "5 6"}, {"p", passage}, {"id", passage.size()}} << "\n";
  file.close();
  const std::vector<json> numbers = lines_of<json>(
      predict(model, {"--task", "text-classification", "--input", pairs, "--text-field", "q", "--pair-field", "p"})
          .out);
  REQUIRE(numbers.size() == passages.size());
  const auto logit = [&](const std::string& passage) {
    for (size_t i = 0; i < passages.size(); ++i)
      if (passages[i] == passage) return numbers[i]["value"].get<double>();
    throw std::runtime_error("no such passage: " + passage);
  };

  std::vector<std::string> options = {"--query", "5 6"};
  options.insert(options.end(), passages.begin(), passages.end());
  const std::vector<json> best = ranks(model, options);
  REQUIRE(best.size() == passages.size());
  for (size_t i = 0; i < best.size(); ++i) {
    CHECK(best[i]["query"] == "5 6");
    CHECK(best[i]["score"].get<double>() == Approx(sigmoid(logit(best[i]["text"]))).margin(1e-6));
    if (i > 0) CHECK(best[i - 1]["score"] >= best[i]["score"]);
  }
  CHECK(best[0]["score"] > best[3]["score"]);
  options.insert(options.end(), {"--raw-scores", "--top-k", "2"});
  const std::vector<json> raw = ranks(model, options);
  REQUIRE(raw.size() == 2);
  CHECK(raw[1]["text"] == best[1]["text"]);
  CHECK(raw[0]["score"].get<double>() == Approx(logit(raw[0]["text"])).margin(1e-6));

  // The fields of JSON lines stay; of lines with two columns each query has its passages.
  const std::vector<json> kept = ranks(model, {"--input", pairs, "--text-field", "p", "--pair-field", "q"});
  REQUIRE(kept.size() == passages.size());
  for (size_t i = 0; i < kept.size(); ++i) {
    CHECK(kept[i] == json{{"q", "5 6"},
                          {"p", best[i]["text"]},
                          {"id", best[i]["text"].get<std::string>().size()},
                          {"score", kept[i]["score"]}});
    CHECK(kept[i]["score"].get<double>() == Approx(best[i]["score"].get<double>()).margin(1e-6));
  }
  const std::string table = directory.path("pairs.tsv");
  std::ofstream(table) << "30\t7\n5 6\t7 8\n5 6\t20 21\n30\t8 9\n5 6\t30\n5 6\t5 6 9\n";
  const std::vector<json> grouped = ranks(model, {"--input", table, "--top-k", "2"});
  REQUIRE(grouped.size() == 4);
  CHECK(grouped[0]["query"] == "30");
  CHECK(grouped[1]["query"] == "30");
  CHECK(grouped[2]["text"] == best[0]["text"]);
  CHECK(grouped[3]["text"] == best[1]["text"]);

  const TaskPredictor predictor(load_pretrained(model), PredictorOptions());
  const std::vector<RankedPassage> ranked = predictor.rerank("5 6", passages, {.top_k = 3});
  REQUIRE(ranked.size() == 3);
  for (size_t i = 0; i < ranked.size(); ++i) {
    CHECK(passages[ranked[i].index] == best[i]["text"]);
    CHECK(ranked[i].score == Approx(best[i]["score"].get<double>()).margin(1e-6));
  }

  std::ofstream(directory.path("bad.tsv")) << "5\t6\n5 6\n\t7\n5\t\n5\t6\t7\n";
  const std::string bad = refusal(model, {"--task", "rerank", "--input", directory.path("bad.tsv")});
  CHECK_THAT(bad, Contains("65 ") && Contains("line 2: want QUERY<tab>PASSAGE") && Contains("4 of 5"));
  CHECK_THAT(refusal(model, {"--task", "text-classification", "--query", "5", "6"}),
             Contains("2 ") && Contains("--query is an option of --task rerank"));
  CHECK_THAT(refusal(model, {"--task", "text-classification", "--raw-scores", "6"}),
             Contains("2 ") && Contains("--raw-scores is an option of --task rerank"));
  CHECK_THAT(refusal(model, {"--task", "rerank", "--input", pairs, "--text-field", "p"}),
             Contains("2 ") && Contains("needs --query, or --pair-field"));
}

TEST_CASE("A reranker of sentence-transformers has its activation, and one output", "[unit][predict][finetune]") {
  const TemporaryDirectory directory;
  const FinetuneConfig config = bert::testing::tiny_task_of("text-regression", directory);
  REQUIRE(finetune(config, false) == kOk);
  const std::string model = directory.path("converted");
  const auto convert = [](const std::string& to, const std::string& from, const std::string& output) {
    std::vector<std::string> arguments = {"convert", to, "huggingface", "--input", from, "--output", output};
    const auto result = run_command(convert_command, arguments);
    CAPTURE(result.err);
    REQUIRE(result.code == kOk);
  };
  convert("--to", config.run_directory, model);
  json file = json::parse(read_file(model + "/config.json"));
  const auto score = [](const std::string& checkpoint, bool raw = false) {
    std::vector<std::string> options = {"--query", "5 6", "7 8"};
    if (raw) options.emplace_back("--raw-scores");
    return ranks(checkpoint, options).at(0)["score"].get<double>();
  };
  const auto with = [&](const char* key, const json& value) {
    json changed = file;
    changed[key] = value;
    std::ofstream(model + "/config.json") << changed;
  };
  const double logit = score(model, /*raw=*/true);
  CHECK(score(model) == Approx(sigmoid(logit)).margin(1e-6));
  with("sbert_ce_default_activation_function", "torch.nn.modules.activation.Sigmoid");
  CHECK(score(model) == Approx(sigmoid(logit)).margin(1e-6));
  with("sbert_ce_default_activation_function", "torch.nn.modules.linear.Identity");  // before version 4
  CHECK(score(model) == logit);
  with("sentence_transformers", {{"activation_fn", "torch.nn.modules.linear.Identity"}, {"version", "4.1.0"}});
  CHECK(score(model) == logit);
  convert("--from", model, directory.path("checkpoint"));
  CHECK(score(directory.path("checkpoint")) == logit);
  convert("--to", directory.path("checkpoint"), directory.path("back"));
  CHECK(json::parse(read_file(directory.path("back/config.json")))["sentence_transformers"]["activation_fn"] ==
        "torch.nn.modules.linear.Identity");
  with("sentence_transformers", {{"activation_fn", "torch.nn.modules.activation.Tanh"}});
  CHECK_THAT(refusal(model, {"--task", "rerank", "--query", "5", "6"}),
             Contains("65 ") && Contains("Tanh; expected Sigmoid or Identity"));

  // The files of version 5: modules.json has the Transformer alone.
  std::ofstream(model + "/config.json") << file;
  std::ofstream(model + "/modules.json")
      << R"([{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}])";
  CHECK_THAT(refusal(model, {"--task", "rerank", "--query", "5", "6"}), Contains("65 ") && Contains("has no Pooling"));
  std::ofstream(model + "/config_sentence_transformers.json")
      << R"({"model_type": "CrossEncoder", "activation_fn": "torch.nn.modules.linear.Identity", "prompts": {}})";
  CHECK(score(model) == logit);
  std::ofstream(model + "/config_sentence_transformers.json")
      << R"({"model_type": "CrossEncoder", "activation_fn": "torch.nn.modules.activation.Sigmoid"})";
  CHECK(score(model) == Approx(sigmoid(logit)).margin(1e-6));

  const FinetuneConfig classes = bert::testing::tiny_task_of("text-classification", directory);
  REQUIRE(finetune(classes, false) == kOk);
  CHECK_THAT(refusal(classes.run_directory, {"--task", "rerank", "--query", "5", "6"}),
             Contains("65 ") && Contains("has 2 labels; a reranker has one output"));
}

TEST_CASE("bert evaluate rerank ranks lists of passages, and takes a CrossEncoder's directory as predict does",
          "[unit][predict][finetune]") {
  const TemporaryDirectory directory;
  const FinetuneConfig config = bert::testing::tiny_task_of("text-regression", directory);
  REQUIRE(finetune(config, false) == kOk);
  const std::string model = directory.path("converted");
  REQUIRE(run_command(convert_command,
                      {"convert", "--to", "huggingface", "--input", config.run_directory, "--output", model})
              .code == kOk);
  json file = json::parse(read_file(model + "/config.json"));
  for (const char* key : {"finetuning_task", "problem_type"}) file.erase(key);
  std::ofstream(model + "/config.json") << file;
  const auto evaluate = [&](const std::string& checkpoint, std::vector<std::string> more) {
    more.insert(more.begin(), {"evaluate", "rerank", "--checkpoint", checkpoint, "--dataset"});
    return run_command(evaluate_torch_command, more);
  };
  const std::vector<std::string> passages = {"7 8", "20 21", "30", "5 6 9"};
  const TaskPredictor predictor(load_pretrained(model), PredictorOptions());
  const std::vector<RankedPassage> best = predictor.rerank("5 6", passages);
  const std::string samples = directory.path("samples.jsonl");
  const auto passage = [&](size_t rank) { return passages[best[rank].index]; };
  std::ofstream lines(samples);  // the relevant one is the second of four
  lines << json{{"query", "5 6"},
                {"positive", json::array({passage(1)})},
                {"negative", json::array({passage(2), passage(0), passage(3)})}}
        << "\n"
        << json{{"query", "5 6"}, {"positive", json::array()}, {"negative", json::array({passage(2)})}} << "\n";
  lines.close();
  for (const std::string& checkpoint : {config.run_directory, model}) {
    const auto result = evaluate(checkpoint, {samples});
    CAPTURE(result.err);
    REQUIRE(result.code == kOk);
    const json figures = json::parse(result.out);
    CHECK(figures["map"].get<double>() == Approx(0.25));
    CHECK(figures["mrr@10"].get<double>() == Approx(0.25));
    CHECK(figures["ndcg@10"].get<double>() == Approx(0.5 / std::log2(3)));
  }
  CHECK(evaluate(model, {samples, "--output-directory", directory.path("out")}).code == kUsage);
  const auto refused = evaluate(model, {samples, "--long", "refuse", "data.max_seq_length=8"});
  CHECK(refused.code == kOk);  // no pair is longer
  std::ofstream(samples) << R"({"query": "5 6 7", "positive": ["5"], "negative": ["5 6 7 8 9 10"]})";
  CHECK_THAT(evaluate(model, {samples, "--long", "refuse", "data.max_seq_length=8"}).err,
             Contains("samples.jsonl:1: the text has more than 8 tokens"));
  const auto cut = evaluate(model, {samples, "data.max_seq_length=8"});
  CHECK(cut.code == kOk);
  CHECK_THAT(cut.err, Contains("1 of 2 pairs have more tokens than the model reads"));

  std::ofstream(directory.path("scores.tsv")) << "query\tpassage\tlabel\n5 6\t7 8\t0.1\n5 6\t30\t0.9\n7\t9\t0.5\n";
  const std::vector<std::string> pairs = {directory.path("scores.tsv"), "data.text_column=query",
                                          "data.text_pair_column=passage"};
  const auto expected = evaluate(config.run_directory, pairs), got = evaluate(model, pairs);
  CAPTURE(got.err);
  REQUIRE(got.code == kOk);
  CHECK(got.out == expected.out);
  const FinetuneConfig classes = bert::testing::tiny_task_of("text-classification", directory);
  REQUIRE(finetune(classes, false) == kOk);
  CHECK_THAT(evaluate(classes.run_directory, pairs).err, Contains("has 2 labels; a reranker has one output"));
}
