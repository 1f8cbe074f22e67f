// Independent labels: their metrics against scikit-learn (golden/label_sets.py), their tables, their files.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/tasks/label_set_metrics.h"
#include "app/tasks/label_set_scoring.h"
#include "app/verbs/verbs.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/tasks/task_data.h"
#include "tests/support/command_testing.h"
#include "tests/support/small_vocabulary.h"
#include "tests/testing.h"

using namespace bert;
using namespace bert::testing;
using nlohmann::json;

namespace {

using Sets = std::vector<std::vector<int32_t>>;

TaskFile split_file(const TaskDefinition& task, TaskSplit split) {
  return *std::ranges::find_if(task.files, [&](const TaskFile& file) { return file.split == split; });
}

/// Writes a table, and reads it as a file of the split, with the labels that are found in it.
TaskExamples read_label_sets(const TemporaryDirectory& directory, const std::string& name, const std::string& text,
                             const TaskDataConfig& config, TaskSplit split = TaskSplit::kDev) {
  const std::string path = directory.path(name);
  std::ofstream(path, std::ios::binary) << text;
  TaskDefinition task = task_definition(kMultiLabelTask);
  if (split == TaskSplit::kTest) {
    task.labels = {"b", "a"};
  } else {
    find_labels(task, path, config);
  }
  return read_task(task, split_file(task, split), path, config);
}

Sets sets_of(const TaskExamples& examples) {
  Sets sets;
  for (const TextExample& example : examples.texts) sets.push_back(example.labels);
  return sets;
}

std::string label_set_refusal(const TemporaryDirectory& directory, const std::string& name, const std::string& text,
                              const TaskDataConfig& config) {
  return message_of<DataError>([&] { read_label_sets(directory, name, text, config); });
}

}  // namespace

TEST_CASE("Metrics of independent labels equal scikit-learn's", "[unit][tasks]") {
  const json cases = json::parse(read_file(golden("label_sets.json")));
  REQUIRE(cases.size() == 6);
  for (const json& at : cases) {
    INFO(at.dump());
    const auto labels = at["labels"].get<size_t>();
    const auto right = at["right"].get<std::vector<uint8_t>>();
    const auto scores = at["scores"].get<std::vector<double>>();
    const auto above = [&](double threshold) {
      std::vector<uint8_t> predicted;
      for (const double score : scores) predicted.push_back(score > threshold);
      return predicted;
    };
    const std::vector<uint8_t> predicted = above(0.5);
    const auto expect = [&](const char* name, double value) {
      INFO(name);
      CHECK(value == Approx(at[name].get<double>()).margin(1e-12).epsilon(1e-12));
    };
    expect("f1_micro", micro_f1(right, predicted));
    expect("f1_macro", macro_f1_of_sets(right, predicted, labels));
    expect("f1_samples", sample_f1(right, predicted, labels));
    expect("average_precision", macro_average_precision(right, scores, labels));
    expect("label_ranking_average_precision", label_ranking_average_precision(right, scores, labels));
    expect("best_f1_micro", micro_f1(right, above(best_f1_threshold(right, scores, 0.5))));
  }
}

TEST_CASE("The threshold of the best F1 lies between two scores", "[unit][tasks]") {
  // By hand: with the two best scores F1 is 2 * 2 / (2 + 2); with one 2/3, with all four 2/3.
  const std::vector<uint8_t> right = {1, 0, 1, 0};
  const std::vector<double> scores = {0.75, 0.25, 0.5, 0.125};
  CHECK(best_f1_threshold(right, scores, 0.5) == 0.375);
  CHECK(best_f1_threshold(std::vector<uint8_t>{1, 1}, std::vector<double>{0.5, 0.25}, 0.5) == 0.125);
  CHECK(best_f1_threshold(std::vector<uint8_t>{0, 0}, std::vector<double>{0.5, 0.25}, 0.7) == 0.7);
  const double below = std::nextafter(1.0, 0.0);  // no number is between the two
  const double found = best_f1_threshold(std::vector<uint8_t>{1, 0}, std::vector<double>{1.0, below}, 0.5);
  CHECK(found < 1);
  CHECK(found >= below);
}

TEST_CASE("Sets of labels are read from lists, from separated labels, and from columns", "[unit][tasks]") {
  const TemporaryDirectory directory;
  TaskDataConfig config;
  const Sets wanted = {{0, 2}, {}, {1}, {0}};
  TaskExamples examples =
      read_label_sets(directory, "dev.csv", "text,label\nx,\"a,c\"\ny,\nz,b\nw,\" a , a\"\n", config);
  CHECK(examples.task.labels == std::vector<std::string>{"a", "b", "c"});
  CHECK(sets_of(examples) == wanted);
  examples = read_label_sets(directory, "dev.jsonl",
                             "{\"text\": \"x\", \"label\": [\"c\", \"a\"]}\n{\"text\": \"y\", \"label\": []}\n"
                             "{\"text\": \"z\", \"label\": \"b\"}\n{\"text\": \"w\", \"label\": [\"a\"]}\n",
                             config);
  CHECK(sets_of(examples) == wanted);
  examples = read_label_sets(directory, "dev.jsonl", "{\"text\": \"x\", \"label\": [10, 2]}\n", config);
  CHECK(examples.task.labels == std::vector<std::string>{"2", "10"});  // as integers
  config.label_separator = "||";
  examples = read_label_sets(directory, "dev.tsv", "text\tlabel\nx\ta || c\ny\t\nz\tb\nw\ta\n", config);
  CHECK(sets_of(examples) == wanted);
  config.label_columns = {"a", "b", "c"};
  examples = read_label_sets(directory, "dev.csv",
                             "id,text,a,b,c\n1,x,1,0,1\n2,y,0,0,0\n3,z,False,True,0\n4,w,1.0,0,0\n", config);
  CHECK(examples.task.labels == config.label_columns);
  CHECK(sets_of(examples) == wanted);
  CHECK(examples.has_labels);
  const WordPieceTokenizer tokenizer(small_vocabulary());
  const TaskFeatures features = make_features(examples, tokenizer, config, /*for_training=*/true);
  CHECK(features.multi_label);
  CHECK(features.num_outputs == 3);
  CHECK(features.sequences[0].labels == std::vector<int32_t>{0, 2});
  // A model may have the labels in another order than the columns.
  config.label_columns = {"a", "b"};
  CHECK(sets_of(read_label_sets(directory, "test.csv", "text,a,b\nx,1,0\ny,1,1\n", config, TaskSplit::kTest)) ==
        Sets{{1}, {0, 1}});
  CHECK_FALSE(read_label_sets(directory, "test.csv", "text,b\nx,1\n", config, TaskSplit::kTest).has_labels);
}

TEST_CASE("Wrong sets of labels are refused with their place", "[unit][tasks]") {
  const TemporaryDirectory directory;
  TaskDataConfig config;
  const auto refusal = [&](const std::string& name, const std::string& text) {
    return label_set_refusal(directory, name, text, config);
  };
  CHECK_THAT(refusal("dev.csv", "text,label\nx,\"a,,b\"\n"),
             Contains("dev.csv:2: column \"label\": one of the labels is empty"));
  CHECK_THAT(refusal("dev.csv", "text,label\nx,a\n"), Contains("want two labels or more, got 1"));
  CHECK_THAT(refusal("dev.jsonl", "{\"text\": \"x\", \"label\": [\"a\", [\"b\"]]}\n"),
             Contains("dev.jsonl:1: column \"label\": want strings or numbers in the list, got array"));
  CHECK_THAT(refusal("dev.jsonl", "{\"text\": \"x\", \"label\": [\"a, b\", \"c\"]}\n"),
             Contains("the label \"a, b\" has the text \",\"") && Contains("data.label_separator"));
  config.labels = {"a", "b"};
  CHECK_THAT(refusal("dev.csv", "text,label\nx,a\ny,a|b\n"),
             Contains("dev.csv:3: column \"label\": unknown label \"a|b\"; the labels are a, b"));
  config.label_columns = {"a", "b"};
  CHECK_THAT(refusal("dev.csv", "text,a,b\nx,0,1\n"), Contains("data.labels: want none with data.label_columns"));
  config.labels = {};
  CHECK_THAT(refusal("dev.csv", "text,a,b\nx,0,-1\n"), Contains("dev.csv:2: column \"b\": want 0 or 1, got \"-1\""));
  CHECK_THAT(refusal("dev.csv", "text,a\nx,0\n"), Contains("no column \"b\""));
}

TEST_CASE("Independent labels are predicted above their thresholds, and scored alike from their file",
          "[unit][tasks]") {
  const TemporaryDirectory directory;
  TaskDataConfig config;
  config.label_separator = "|";
  const TaskExamples examples = read_label_sets(directory, "dev.csv", "text,label\nx,a|b\ny,\nz,b\n", config);
  const WordPieceTokenizer tokenizer(small_vocabulary());
  const TaskFeatures features = make_features(examples, tokenizer, config, /*for_training=*/false);
  // By hand: sigmoid(0) = 0.5, sigmoid(log 3) = 0.75, sigmoid(-log 3) = 0.25.
  const float high = std::log(3.0F);
  const std::vector<float> logits = {0, high, -high, -high, high, high};
  TaskScores scores = score_task(examples, features, logits, tokenizer, config);
  CHECK(scores.label_thresholds == std::vector<double>{0.5, 0.5});
  REQUIRE(scores.outputs.size() == 1);
  CHECK(scores.outputs[0].name == "dev_predictions.tsv");
  CHECK_THAT(scores.outputs[0].content, Contains("index\tprediction\tscore:a\tscore:b\n0\tb\t0.5\t0.7"));
  CHECK(scores.metrics[0].name == "f1_micro");
  CHECK(scores.metrics[0].value == Approx(2.0 / 3));  // two of three labels, and one wrong prediction
  config.search_label_threshold = ThresholdSearch::kPerLabel;
  scores = score_task(examples, features, logits, tokenizer, config);
  CHECK(scores.label_thresholds[0] == Approx(0.375));
  CHECK(scores.label_thresholds[1] == Approx(0.5));
  config.search_label_threshold = ThresholdSearch::kOne;
  scores = score_task(examples, features, logits, tokenizer, config);
  CHECK(scores.label_thresholds[0] == Approx(0.375));
  CHECK(scores.label_thresholds[1] == scores.label_thresholds[0]);
  CHECK(scores.metrics[0].value == Approx(6.0 / 7));
  CHECK_THAT(scores.outputs[0].content, Contains("\n0\ta|b\t0.5\t0.7") && Contains("\n1\t\t0.2"));

  std::ofstream(directory.path("p.tsv")) << scores.outputs[0].content;
  const CommandResult result =
      run_command(evaluate_command, {"evaluate", kMultiLabelTask, "--dataset", directory.path("dev.csv"),
                                     "--predictions", directory.path("p.tsv"), "data.label_separator=|"});
  REQUIRE(result.code == kOk);
  const json metrics = json::parse(result.out);
  REQUIRE(scores.metrics.size() == 5);
  CHECK(metrics.size() == 5);
  for (const TaskMetric& metric : scores.metrics) CHECK(metrics[metric.name] == metric.value);
  std::ofstream(directory.path("p.tsv")) << "index\tprediction\n2\tc\n0\ta|b\n1\t\n";
  const CommandResult plain =
      run_command(evaluate_command, {"evaluate", kMultiLabelTask, "--dataset", directory.path("dev.csv"),
                                     "--predictions", directory.path("p.tsv"), "data.label_separator=|"});
  REQUIRE(plain.code == kOk);
  // scikit-learn 1.9.1: f1_score() of [[1,1,0],[0,0,0],[0,1,0]] and [[1,1,0],[0,0,0],[0,0,1]].
  CHECK(json::parse(plain.out)["f1_micro"].get<double>() == Approx(0.6666666666666666));
  CHECK(json::parse(plain.out)["f1_macro"].get<double>() == Approx(0.5555555555555555));
  CHECK(json::parse(plain.out)["f1_samples"].get<double>() == Approx(0.3333333333333333));
  CHECK(json::parse(plain.out).size() == 3);
}
