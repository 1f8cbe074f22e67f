// bert evaluate: official metrics of files of predictions.
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "app/tasks/task_scoring.h"
#include "app/verbs/verbs.h"
#include "data/io/files.h"
#include "tests/support/command_testing.h"
#include "tests/support/small_vocabulary.h"
#include "tests/testing.h"

using namespace bert;
using namespace bert::testing;
using nlohmann::json;

namespace {

/// Runs bert evaluate in a directory of files.
class Evaluation {
 public:
  void write(const std::string& name, const std::string& text) { std::ofstream(path(name), std::ios::binary) << text; }
  [[nodiscard]] std::string path(const std::string& name = "") const { return directory_.path(name); }

  [[nodiscard]] CommandResult run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "evaluate");
    return run_command(evaluate_command, arguments);
  }
  /// The metrics, for the files `dataset` and `predictions`.
  [[nodiscard]] json metrics(const std::string& task, const std::string& dataset,
                             const std::string& predictions) const {
    const CommandResult result = run({task, "--dataset", path(dataset), "--predictions", path(predictions)});
    INFO(result.err);
    CHECK(result.code == kOk);
    return json::parse(result.out);
  }

 private:
  TemporaryDirectory directory_;
};

constexpr const char* kSquad = R"({"data": [{"paragraphs": [{"context": "the quick fox", "qas": [
  {"id": "a", "question": "q", "answers": [{"text": "quick fox", "answer_start": 4}]},
  {"id": "b", "question": "q", "answers": [{"text": "fox", "answer_start": 10}]}]}]}]})";

}  // namespace

TEST_CASE("bert evaluate squad equals the official scorer on real predictions", "[unit][tasks]") {
  const std::string data = shared_data();
  if (data.empty()) BERT_SKIP("../shared/data is absent");
  const json figures = json::parse(read_file(golden("squad_v1.json")));  // of evaluate-v1.1.py
  for (const char* name : {"BERT_ensemble", "logreg"}) {
    const CommandResult result =
        run_command(evaluate_command, {"evaluate", "squad", "--dataset", data + "/squad/dev-v1.1.json", "--predictions",
                                       fmt::format("{}/squad/predictions_v1.1_{}.json", data, name)});
    REQUIRE(result.code == kOk);
    const json scores = json::parse(result.out);
    CHECK(scores.size() == 2);
    for (const char* metric : {"exact_match", "f1"})
      CHECK(std::abs(scores[metric].get<double>() - figures[name][metric].get<double>()) < 1e-9);
  }
}

TEST_CASE("bert evaluate squad counts a question without a prediction as wrong", "[unit][tasks]") {
  Evaluation evaluation;
  evaluation.write("dev.json", kSquad);
  evaluation.write("p.json", R"({"a": "quick"})");
  const CommandResult result =
      evaluation.run({"squad", "--data-directory", evaluation.path(), "--predictions", evaluation.path("p.json")});
  CHECK(result.code == kOk);
  CHECK(json::parse(result.out)["f1"].get<double>() == Approx(100.0 / 3));  // 2/3 and 0
  CHECK(result.err == "bert evaluate: 1 of 2 questions have no prediction; they score 0\n");

  const CommandResult v2 = evaluation.run(
      {"squad", "--v2", "--dataset", evaluation.path("dev.json"), "--predictions", evaluation.path("p.json")});
  CHECK(v2.code == kBadData);
  CHECK(v2.err.find("no prediction for the question b") != std::string::npos);
}

TEST_CASE("bert evaluate squad --v2 reads scores of having no answer", "[unit][tasks]") {
  Evaluation evaluation;
  evaluation.write("dev.json", R"({"data": [{"paragraphs": [{"context": "the fox", "qas": [
    {"id": "a", "question": "q", "answers": [{"text": "fox", "answer_start": 4}], "is_impossible": false},
    {"id": "b", "question": "q", "answers": [], "is_impossible": true}]}]}]})");
  evaluation.write("p.json", R"({"a": "fox", "b": "fox"})");
  evaluation.write("odds.json", R"({"a": -1.5, "b": 2})");
  const auto run = [&](const std::string& threshold) {
    const CommandResult result = evaluation.run({"squad", "--v2", "--dataset", evaluation.path("dev.json"),
                                                 "--predictions", evaluation.path("p.json"), "--na-prob-file",
                                                 evaluation.path("odds.json"), "--na-prob-thresh", threshold});
    REQUIRE(result.code == kOk);
    return json::parse(result.out);
  };
  CHECK(run("1")["exact_match"] == 100);
  CHECK(run("3")["exact_match"] == 50);
  CHECK(run("3")["NoAns_exact"] == 0);
  CHECK(run("-2")["HasAns_f1"] == 0);
  CHECK(run("3")["best_exact"] == 100);
  CHECK(run("3")["best_f1_thresh"] == -1.5);
  CHECK(run("3")["total"].dump() == "2");
}

TEST_CASE("bert evaluate squad reads a file as the official scorers do", "[unit][tasks]") {
  Evaluation evaluation;
  // evaluate-v1.1.py does not look at the place of an answer, nor does evaluate-v2.0.py at is_impossible.
  evaluation.write("dev.json", R"({"data": [{"paragraphs": [{"context": "the quick fox", "qas": [
    {"id": "a", "question": "q", "answers": [{"text": "fox", "answer_start": 1}, {"text": "dog"}]}]}]}]})");
  evaluation.write("p.json", R"({"a": "dog"})");
  CHECK(evaluation.metrics("squad", "dev.json", "p.json") == json({{"exact_match", 100.0}, {"f1", 100.0}}));
  evaluation.write("v2.json", R"({"data": [{"paragraphs": [{"context": "the fox", "qas": [
    {"id": "a", "question": "q", "answers": []},
    {"id": "b", "question": "q", "answers": [{"text": "fox", "answer_start": 0}], "is_impossible": true}]}]}]})");
  evaluation.write("p.json", R"({"a": "", "b": "fox"})");
  const json v2 = evaluation.metrics("squad-v2", "v2.json", "p.json");
  CHECK(v2["exact_match"] == 100);
  CHECK(v2["NoAns_total"] == 1);
  CHECK(v2["HasAns_total"] == 1);
  // A question without the list has no key "answers" for the official scorers either.
  evaluation.write("v2.json",
                   R"({"data": [{"paragraphs": [{"context": "c", "qas": [{"id": "a", "question": "q"}]}]}]})");
  CHECK(
      evaluation.run({"squad-v2", "--dataset", evaluation.path("v2.json"), "--predictions", evaluation.path("p.json")})
          .code == kBadData);
}

TEST_CASE("bert evaluate scores the submission format of GLUE", "[unit][tasks]") {
  Evaluation evaluation;
  evaluation.write("dev.tsv", "sentence\tlabel\na\t1\nb\t0\nc\t0\nd\t1\n");
  evaluation.write("p.tsv", "index\tprediction\n3\t1\n0\t0\n1\t0\n2\t0\n");
  CHECK(evaluation.metrics("sst2", "dev.tsv", "p.tsv") == json({{"accuracy", 0.75}}));
  const auto error = [&](const std::string& predictions) {
    evaluation.write("p.tsv", predictions);
    const CommandResult result =
        evaluation.run({"sst2", "--dataset", evaluation.path("dev.tsv"), "--predictions", evaluation.path("p.tsv")});
    CHECK(result.code == kBadData);
    CHECK(result.out.empty());
    return result.err;
  };
  const std::string header = "index\tprediction\n";
  CHECK_THAT(error(header + "0\t1\n1\t1\n2\t1\n"), Contains("no prediction for the example \"3\""));
  CHECK_THAT(error(header + "0\t1\n0\t1\n"), Contains("p.tsv:3: column \"index\": \"0\" is there twice"));
  CHECK_THAT(error(header + "9\t1\n"), Contains("dev.tsv has no example \"9\""));
  CHECK_THAT(error(header + "0\tgood\n"), Contains("p.tsv:2: column \"prediction\": unknown label \"good\""));
  CHECK_THAT(error("a\tb\n0\t1\n"), Contains("no column \"index\""));

  evaluation.write("mnli.tsv", "sentence1\tsentence2\tgold_label\na\tb\tneutral\n");
  std::filesystem::rename(evaluation.path("mnli.tsv"), evaluation.path("dev_mismatched.tsv"));
  evaluation.write("p.tsv", "index\tprediction\n0\tneutral\n");
  CHECK(evaluation.metrics("mnli", "dev_mismatched.tsv", "p.tsv") == json({{"accuracy_mismatched", 1.0}}));

  evaluation.write("sts.tsv", "sentence1\tsentence2\tscore\na\tb\t1\na\tb\t2\na\tb\t4\n");
  evaluation.write("p.tsv", "index\tprediction\n0\t-1\n1\t-2\n2\t-4\n");
  CHECK(evaluation.metrics("stsb", "sts.tsv", "p.tsv") == json({{"pearson", -1.0}, {"spearman", -1.0}}));
}

TEST_CASE("bert evaluate ner compares labels word by word", "[unit][tasks]") {
  Evaluation evaluation;
  evaluation.write("dev.txt", "EU B-ORG\nsays O\n\nPeter B-PER\nB I-PER\n");
  evaluation.write("p.txt", "EU B-ORG B-ORG\nsays O O\n\nPeter B-PER B-PER\nB I-PER O\n\n");
  const json metrics = evaluation.metrics("ner", "dev.txt", "p.txt");
  CHECK(metrics == json({{"f1", 0.5}, {"precision", 0.5}, {"recall", 0.5}, {"accuracy", 0.75}}));
  const auto error = [&](const std::string& predictions) {
    evaluation.write("p.txt", predictions);
    return evaluation.run({"ner", "--dataset", evaluation.path("dev.txt"), "--predictions", evaluation.path("p.txt")})
        .err;
  };
  CHECK_THAT(error("EU O\n"), Contains("the sentence has 1 words"));
  CHECK_THAT(error("EU O\nsay O\n"), Contains("p.txt:2: want the word \"says\""));
  CHECK_THAT(error("EU O\nsays O\n"), Contains("1 sentences, and"));
  CHECK_THAT(error("EU O\nsays O\n\nPeter O\nB O\n\nmore O\n"), Contains("has fewer sentences"));
}

TEST_CASE("bert evaluate scores one's own table", "[unit][tasks]") {
  Evaluation evaluation;
  evaluation.write("dev.csv", "body,topic\n\"a, b\",news\nc,sport\nd,art\n");
  evaluation.write("p.tsv", "index\tprediction\n0\tnews\n1\tart\n2\tart\n");
  const CommandResult result =
      evaluation.run({"text-classification", "--dataset", evaluation.path("dev.csv"), "--predictions",
                      evaluation.path("p.tsv"), "data.text_column=body", "data.label_column=topic"});
  REQUIRE(result.code == kOk);
  // By hand: F1 of art 2/3, of news 1, of sport 0.
  CHECK(json::parse(result.out)["f1"].get<double>() == Approx(5.0 / 9));
  CHECK(json::parse(result.out)["accuracy"].get<double>() == Approx(2.0 / 3));
}

TEST_CASE("A class of one's own table that is only predicted counts as in scikit-learn", "[unit][tasks]") {
  Evaluation evaluation;
  evaluation.write("dev.csv", "text,label\na,news\nb,sport\nc,sport\nd,news\n");
  evaluation.write("p.tsv", "index\tprediction\n0\tnews\n1\tart\n2\tsport\n3\tsport\n");
  // scikit-learn 1.9.1: f1_score(..., average="macro") of ["news", "sport", "sport", "news"] and ["news", "art", "sport",
  // "sport"]; matthews_corrcoef() of the same.
  const json metrics = evaluation.metrics("text-classification", "dev.csv", "p.tsv");
  CHECK(metrics["f1"].get<double>() == Approx(0.38888888888888884));
  CHECK(metrics["matthews_correlation"].get<double>() == Approx(0.22360679774997896));
  CHECK(metrics["accuracy"] == 0.5);
  evaluation.write("dev.csv", "text,label\na,b\nb,b\n");  // the second of two labels counts, also if one is predicted
  evaluation.write("p.tsv", "index\tprediction\n0\ta\n1\tb\n");
  CHECK(evaluation.metrics("text-classification", "dev.csv", "p.tsv")["f1"].get<double>() == Approx(2.0 / 3));
  const CommandResult refused =
      evaluation.run({"text-classification", "--dataset", evaluation.path("dev.csv"), "--predictions",
                      evaluation.path("p.tsv"), "data.labels=[\"b\", \"c\"]"});
  CHECK(refused.code == kBadData);
  CHECK_THAT(refused.err, Contains("unknown label \"a\"; data.labels must have all labels"));
}

TEST_CASE("Outputs of a model are scored alike from logits and from their file", "[unit][tasks]") {
  Evaluation evaluation;
  const WordPieceTokenizer tokenizer(small_vocabulary());
  TaskDefinition task = task_definition("ner");
  evaluation.write("dev.txt", "-DOCSTART- O\n\nthe O\ncat B-X\nunaffable I-X\n\ncafe B-X\n");
  find_labels(task, evaluation.path("dev.txt"), {});
  const TaskExamples examples = read_task(task, task.files[1], evaluation.path("dev.txt"), {});
  const TaskFeatures features = make_features(examples, tokenizer, {}, false);
  std::vector<float> logits(static_cast<size_t>(features.logit_offsets().back()));
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7 % 5);
  const TaskScores scores = score_task(examples, features, logits, tokenizer, {});
  REQUIRE(scores.outputs.size() == 1);
  evaluation.write("p.txt", scores.outputs[0].content);
  const json metrics = evaluation.metrics("ner", "dev.txt", "p.txt");
  for (const TaskMetric& metric : scores.metrics) CHECK(metrics[metric.name] == metric.value);
  logits[3] = NAN;
  CHECK_THROWS_WITH(score_task(examples, features, logits, tokenizer, {}), Contains("not finite"));
  logits.pop_back();
  CHECK_THROWS_AS(score_task(examples, features, logits, tokenizer, {}), std::invalid_argument);
}

TEST_CASE("Choices, classes and numbers are written for submission", "[unit][tasks]") {
  Evaluation evaluation;
  const WordPieceTokenizer tokenizer(small_vocabulary());
  const auto score = [&](const std::string& name, const std::string& file, const std::string& text,
                         const std::vector<float>& logits) {
    const TaskDefinition task = task_definition(name);
    evaluation.write(file, text);
    for (const TaskFile& source : task.files) {
      if (source.names.front() != file) continue;
      const TaskExamples examples = read_task(task, source, evaluation.path(file), {});
      return score_task(examples, make_features(examples, tokenizer, {}, false), logits, tokenizer, {});
    }
    throw std::out_of_range(file);
  };
  TaskScores scores =
      score("swag", "val.csv", "sent1,sent2,ending0,ending1,ending2,ending3,label\na,b,c,d,e,f,1\na,b,c,d,e,f,0\n",
            {0, 3, 1, 2, -5, -4, -3, -6});
  CHECK(scores.outputs[0].content == "index\tprediction\n0\t1\n1\t2\n");
  CHECK(scores.metrics[0].value == 0.5);
  scores = score("qnli", "test.tsv", "index\tquestion\tsentence\n5\ta\tb\n", {0, 1});
  CHECK(scores.metrics.empty());
  CHECK(scores.outputs[0].name == "QNLI.tsv");
  CHECK(scores.outputs[0].content == "index\tprediction\n5\tnot_entailment\n");
  scores = score("stsb", "dev.tsv", "sentence1\tsentence2\tscore\na\tb\t1\na\tb\t2\n", {0.5F, 2.25F});
  CHECK(scores.outputs[0].name == "dev_predictions.tsv");
  CHECK(scores.outputs[0].content == "index\tprediction\n0\t0.5\n1\t2.25\n");
  CHECK(scores.metrics[0].value == Approx(1));
}

TEST_CASE("bert evaluate refuses wrong command lines", "[unit][tasks]") {
  Evaluation evaluation;
  evaluation.write("dev.json", kSquad);
  evaluation.write("p.json", "{}");
  const std::string dataset = evaluation.path("dev.json"), predictions = evaluation.path("p.json");
  CHECK(evaluation.run({"--help"}).code == kOk);
  CHECK(evaluation.run({"sst", "--dataset", dataset, "--predictions", predictions}).code == kUsage);
  CHECK(evaluation.run({"squad", "--predictions", predictions}).code == kUsage);
  CHECK(evaluation.run({"sst2", "--v2", "--dataset", dataset, "--predictions", predictions}).code == kUsage);
  CHECK(evaluation.run({"squad", "--dataset", dataset, "--predictions", predictions, "--na-prob-file", "x"}).code ==
        kUsage);
  CHECK(evaluation.run({"squad", "--dataset", dataset, "--predictions", predictions}).code == kBadData);
  CHECK(evaluation.run({"squad", "--dataset", "none.json", "--predictions", predictions}).code == kInputMissing);
  CHECK(evaluation.run({"squad", "--data-directory", "/none", "--predictions", predictions}).code == kInputMissing);
}
