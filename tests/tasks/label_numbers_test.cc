// Several numbers a text: their metrics against scikit-learn and scipy (golden/labels.py), their tables and files.
#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "app/tasks/task_scoring.h"
#include "app/tasks/text_metrics.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/tasks/task_data.h"
#include "tests/support/small_vocabulary.h"
#include "tests/testing.h"

using namespace bert;
using namespace bert::testing;
using nlohmann::json;

namespace {

using Rows = std::vector<std::vector<double>>;

/// Writes a table and reads it as the development file of text-regression.
TaskExamples read_numbers(const TemporaryDirectory& directory, const std::string& name, const std::string& text,
                          const TaskDataConfig& config) {
  const std::string path = directory.path(name);
  std::ofstream(path, std::ios::binary) << text;
  TaskDefinition task = task_definition(kRegressionTask);
  find_labels(task, path, config);
  return read_task(task, task.files[1], path, config);
}

Rows rows_of(const TaskExamples& examples) {
  Rows rows;
  for (const TextExample& example : examples.texts) rows.push_back(example.values);
  return rows;
}

std::map<std::string, double> by_name(const std::vector<TaskMetric>& metrics) {
  std::map<std::string, double> map;
  for (const TaskMetric& metric : metrics) map[metric.name] = metric.value;
  return map;
}

}  // namespace

TEST_CASE("Metrics of several numbers equal scikit-learn's and scipy's", "[unit][tasks]") {
  const json cases = json::parse(read_file(golden("labels.json"))).at("numbers");
  const WordPieceTokenizer tokenizer(small_vocabulary());
  REQUIRE(cases.size() == 3);
  for (const json& at : cases) {
    const Rows right = at["right"].get<Rows>();
    const size_t columns = right[0].size();
    TaskExamples examples;
    examples.task = task_definition(kRegressionTask);
    examples.has_labels = true;
    TaskFeatures features;
    features.kind = TaskKind::kRegression;
    features.num_outputs = static_cast<int64_t>(columns);
    for (size_t i = 0; i < columns && columns > 1; ++i) examples.task.labels.push_back("n" + std::to_string(i));
    std::vector<float> logits;
    for (size_t i = 0; i < right.size(); ++i) {
      examples.texts.emplace_back().values = right[i];
      features.sequences.emplace_back();
      for (const json& value : at["predictions"][i]) logits.push_back(value.get<float>());
    }
    const auto metrics = by_name(score_task(examples, features, logits, tokenizer, {}).metrics);
    const auto expect = [&](const std::string& name, const json& value) {
      INFO(name);
      CHECK(metrics.at(name) == Approx(value.get<double>()).margin(1e-6).epsilon(1e-6));  // logits are fp32
    };
    for (const char* name : {"pearson", "spearman", "mse", "mae", "r2"}) {
      double mean = 0;
      for (size_t i = 0; i < columns; ++i) {
        const json& value = at[name][i];
        mean += value.get<double>() / static_cast<double>(columns);
        if (columns > 1) expect(std::string(name) + "_n" + std::to_string(i), value);
      }
      expect(name, mean);
    }
    expect("mse", at["mean_mse"]);
    expect("r2", at["mean_r2"]);
    CHECK(metrics.size() == (columns > 1 ? 5 + 5 * columns : 5));
  }
  const std::vector<double> same = {2, 2}, other = {2, 3};
  CHECK(r2_score(same, same) == 1);  // as scikit-learn
  CHECK(r2_score(same, other) == 0);
}

TEST_CASE("Numbers are read from columns and from lists, and their predictions are scored", "[unit][tasks]") {
  const TemporaryDirectory directory;
  TaskDataConfig config;
  const Rows wanted = {{1.5, -2}, {0, 3}};
  TaskExamples examples =
      read_numbers(directory, "dev.jsonl",
                   "{\"text\": \"x\", \"label\": [1.5, -2]}\n{\"text\": \"y\", \"label\": [0, 3]}\n", config);
  CHECK(examples.task.labels == std::vector<std::string>{"LABEL_0", "LABEL_1"});
  CHECK(rows_of(examples) == wanted);
  config.labels = {"joy", "anger"};
  examples = read_numbers(directory, "dev.json", "{\"text\": \"x\", \"label\": [1.5, \"-2\"]}\n", config);
  CHECK(examples.task.labels == config.labels);
  config.labels.clear();
  for (const char* one : {"[2.5]", "2.5"}) {
    examples = read_numbers(directory, "dev.jsonl", std::string("{\"text\": \"x\", \"label\": ") + one + "}\n", config);
    CHECK(examples.task.labels.empty());
    CHECK(rows_of(examples) == Rows{{2.5}});
  }
  config.label_columns = {"joy", "anger"};
  examples = read_numbers(directory, "dev.csv", "anger,text,joy\n-2,x,1.5\n3,y,0\n", config);
  CHECK(rows_of(examples) == wanted);
  CHECK(examples.task.num_outputs() == 2);
  const WordPieceTokenizer tokenizer(small_vocabulary());
  const TaskFeatures features = make_features(examples, tokenizer, config, /*for_training=*/true);
  CHECK(features.sequences[1].values == std::vector<float>{0, 3});
  const TaskScores scores = score_task(examples, features, std::vector<float>{1.5, -1, 0.5, 3}, tokenizer, config);
  CHECK(scores.outputs[0].content == "index\tprediction:joy\tprediction:anger\n0\t1.5\t-1\n1\t0.5\t3\n");
  const std::string predictions = directory.path("p.tsv");
  std::ofstream(predictions) << scores.outputs[0].content;
  const auto read = by_name(score_prediction_file(examples, {.predictions = predictions, .null_scores = {}}).metrics);
  CHECK(read == by_name(scores.metrics));
  CHECK(read.at("mse_joy") == 0.125);  // by hand: 0.5 squared, over two
  CHECK(read.at("mae") == 0.375);
}

TEST_CASE("Wrong numbers of a text are refused with their place", "[unit][tasks]") {
  const TemporaryDirectory directory;
  TaskDataConfig config;
  const auto refusal = [&](const std::string& name, const std::string& text) {
    return message_of<DataError>([&] { read_numbers(directory, name, text, config); });
  };
  CHECK_THAT(refusal("dev.jsonl", "{\"text\": \"x\", \"label\": [1, 2]}\n{\"text\": \"y\", \"label\": [1]}\n"),
             Contains("dev.jsonl:2: column \"label\": want 2 numbers, got 1"));
  CHECK_THAT(refusal("dev.jsonl", "{\"text\": \"x\", \"label\": [1, \"two\"]}\n"),
             Contains("dev.jsonl:1: column \"label\": want a number, got \"two\""));
  CHECK_THAT(refusal("dev.csv", "text,label\nx,\"1,5\"\n"), Contains("want a number, got \"1,5\""));
  config.label_columns = {"a"};
  CHECK_THAT(refusal("dev.csv", "text,a\nx,1\n"), Contains("want two labels or more, got 1"));
  config.label_columns = {"a", "b"};
  CHECK_THAT(refusal("dev.csv", "text,a,b\nx,1,\n"), Contains("dev.csv:2: column \"b\": want a number, got \"\""));
}
