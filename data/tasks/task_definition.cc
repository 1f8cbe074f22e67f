#include "data/tasks/task_definition.h"

#include <filesystem>
#include <stdexcept>
#include <utility>

#include "data/config.h"
#include "data/io/text_parts.h"

namespace bert {
namespace {

using Names = std::vector<std::string>;

/// Files of a split, with the output's name.
TaskFile file(TaskSplit split, Names names, std::string output, std::string part = "") {
  return {.split = split, .part = std::move(part), .names = std::move(names), .output = std::move(output)};
}

constexpr const char* kDevOutput = "dev_predictions.tsv";

/// GLUE's three files. `submission` is the name that gluebenchmark.com wants.
std::vector<TaskFile> glue_files(const std::string& submission) {
  return {file(TaskSplit::kTrain, {"train.tsv"}, ""), file(TaskSplit::kDev, {"dev.tsv"}, kDevOutput),
          file(TaskSplit::kTest, {"test.tsv"}, submission)};
}

/// A classification of GLUE; the id is in the column "index" of test files.
TaskDefinition glue(TaskColumns columns, Names labels, const std::string& submission, Names metrics) {
  columns.id = "index";
  return {.labels = std::move(labels),
          .files = glue_files(submission),
          .metrics = std::move(metrics),
          .columns = std::move(columns)};
}

TaskDefinition stsb() {
  TaskDefinition task =
      glue({.text = "sentence1", .text_pair = "sentence2", .label = "score"}, {}, "STS-B.tsv", {"pearson", "spearman"});
  task.kind = TaskKind::kRegression;
  return task;
}

TaskDefinition qqp() {
  TaskDefinition task = glue({.text = "question1", .text_pair = "question2", .label = "is_duplicate"}, {"0", "1"},
                             "QQP.tsv", {"accuracy", "f1"});
  task.columns.id = "id";
  task.skips_short_rows = true;
  return task;
}

TaskDefinition mnli() {
  TaskDefinition task = glue({.text = "sentence1", .text_pair = "sentence2", .label = "gold_label"},
                             {"contradiction", "entailment", "neutral"}, "", {"accuracy"});
  task.files = {file(TaskSplit::kTrain, {"train.tsv"}, ""),
                file(TaskSplit::kDev, {"dev_matched.tsv"}, "dev_matched_predictions.tsv", "matched"),
                file(TaskSplit::kDev, {"dev_mismatched.tsv"}, "dev_mismatched_predictions.tsv", "mismatched"),
                file(TaskSplit::kTest, {"test_matched.tsv"}, "MNLI-m.tsv", "matched"),
                file(TaskSplit::kTest, {"test_mismatched.tsv"}, "MNLI-mm.tsv", "mismatched"),
                file(TaskSplit::kTest, {"diagnostic.tsv", "AX.tsv", "../AX/AX.tsv", "../diagnostic/diagnostic.tsv"},
                     "AX.tsv", "diagnostic")};
  return task;
}

/// XNLI-1.0 and XNLI-MT-1.0, as they are unpacked. Source: run_classifier.py (XnliProcessor).
TaskDefinition xnli() {
  TaskDefinition task = glue({.text = "sentence1", .text_pair = "sentence2", .label = "gold_label"},
                             {"contradiction", "entailment", "neutral"}, "", {"accuracy"});
  task.columns.id = "pairID";
  task.columns.language = "language";
  task.aliases = {{"contradictory", "contradiction"}};
  const std::string train = "multinli.train.{}.tsv";
  task.files = {file(TaskSplit::kTrain, {train, "multinli/" + train, "XNLI-MT-1.0/multinli/" + train}, ""),
                file(TaskSplit::kDev, {"xnli.dev.tsv", "XNLI-1.0/xnli.dev.tsv"}, kDevOutput),
                file(TaskSplit::kTest, {"xnli.test.tsv", "XNLI-1.0/xnli.test.tsv"}, "test_predictions.tsv")};
  task.files[0].columns = {.text = "premise", .text_pair = "hypo", .label = "label"};
  return task;
}

TaskDefinition ner() {
  return {
      .kind = TaskKind::kTokenClassification,
      .layout = TaskLayout::kConll,
      .files = {file(TaskSplit::kTrain, {"train.txt", "eng.train", "train.conll", "train.jsonl"}, ""),
                file(TaskSplit::kDev, {"dev.txt", "valid.txt", "eng.testa", "dev.conll", "dev.jsonl"},
                     "dev_predictions.txt"),
                file(TaskSplit::kTest, {"test.txt", "eng.testb", "test.conll", "test.jsonl"}, "test_predictions.txt")},
      .metrics = {"f1", "precision", "recall", "accuracy"}};
}

TaskDefinition swag() {
  return {
      .kind = TaskKind::kMultipleChoice,
      .layout = TaskLayout::kSwag,
      .files = {file(TaskSplit::kTrain, {"train.csv"}, ""), file(TaskSplit::kDev, {"val.csv", "dev.csv"}, kDevOutput),
                file(TaskSplit::kTest, {"test.csv"}, "test_predictions.tsv")},
      .metrics = {"accuracy"}};
}

TaskDefinition squad(const std::string& version, bool no_answers) {
  const auto names = [&](const std::string& stem) {
    return Names{stem + "-v" + version + ".json", stem + ".json", stem + ".jsonl"};
  };
  return {
      .kind = TaskKind::kQuestionAnswering,
      .layout = TaskLayout::kSquad,
      .files = {file(TaskSplit::kTrain, names("train"), ""), file(TaskSplit::kDev, names("dev"), "predictions.json"),
                file(TaskSplit::kTest, names("test"), "test_predictions.json")},
      .metrics = {"f1", "exact_match"},
      .no_answers = no_answers};
}

/// A task on the user's own tables. Its columns are those of TaskDataConfig.
TaskDefinition own_table(TaskKind kind, Names metrics) {
  const auto names = [](const std::string& stem) {
    return Names{stem + ".csv", stem + ".tsv", stem + ".jsonl", stem + ".json", stem + ".parquet", stem + ".arrow"};
  };
  return {.kind = kind,
          .layout = TaskLayout::kTable,
          .files = {file(TaskSplit::kTrain, names("train"), ""), file(TaskSplit::kDev, names("dev"), kDevOutput),
                    file(TaskSplit::kTest, names("test"), "test_predictions.tsv")},
          .metrics = std::move(metrics),
          .columns = {.id = "id"}};
}

/// The relevance of a passage to a query, as a cross-encoder of sentence-transformers learns it.
TaskDefinition rerank() {
  TaskDefinition task = own_table(TaskKind::kRegression, {"spearman", "pearson"});
  task.scores = true;
  return task;
}

/// Any number of labels for a text: problem_type multi_label_classification of transformers.
TaskDefinition multi_label() {
  TaskDefinition task = own_table(TaskKind::kClassification, {"f1_micro", "f1_macro", "f1_samples", "average_precision",
                                                              "label_ranking_average_precision"});
  task.multi_label = true;
  return task;
}

/// All tasks, in the order of task_names(). The labels of GLUE's tasks have the order of run_classifier.py's processors
/// and, for the tasks that it lacks, of transformers' (data/processors/glue.py).
const std::vector<std::pair<std::string, TaskDefinition>>& table() {
  const Names entailment = {"entailment", "not_entailment"};
  static const std::vector<std::pair<std::string, TaskDefinition>> kTable = {
      {"squad-v1", squad("1.1", false)},
      {"squad-v2", squad("2.0", true)},
      {"cola", glue({.text = "sentence", .label = "label", .header = {"source", "label", "star", "sentence"}},
                    {"0", "1"}, "CoLA.tsv", {"matthews_correlation", "accuracy"})},
      {"sst2", glue({.text = "sentence", .label = "label"}, {"0", "1"}, "SST-2.tsv", {"accuracy"})},
      {"mrpc", glue({.text = "#1 String", .text_pair = "#2 String", .label = "Quality"}, {"0", "1"}, "MRPC.tsv",
                    {"accuracy", "f1"})},
      {"stsb", stsb()},
      {"qqp", qqp()},
      {"mnli", mnli()},
      {"qnli",
       glue({.text = "question", .text_pair = "sentence", .label = "label"}, entailment, "QNLI.tsv", {"accuracy"})},
      {"rte",
       glue({.text = "sentence1", .text_pair = "sentence2", .label = "label"}, entailment, "RTE.tsv", {"accuracy"})},
      {"wnli",
       glue({.text = "sentence1", .text_pair = "sentence2", .label = "label"}, {"0", "1"}, "WNLI.tsv", {"accuracy"})},
      {"xnli", xnli()},
      {"ner", ner()},
      {"swag", swag()},
      {"text-classification", own_table(TaskKind::kClassification, {"accuracy", "f1", "matthews_correlation"})},
      {kMultiLabelTask, multi_label()},
      {"text-regression", own_table(TaskKind::kRegression, {"pearson", "spearman", "mse", "mae", "r2"})},
      {"rerank", rerank()},
      {"embedding", own_table(TaskKind::kEmbedding, {"cosine_spearman", "cosine_pearson"})},
  };
  return kTable;
}

}  // namespace

const char* split_name(TaskSplit split) {
  return split == TaskSplit::kTrain ? "train" : split == TaskSplit::kDev ? "dev" : "test";
}

int64_t TaskDefinition::num_outputs() const {
  if (kind == TaskKind::kQuestionAnswering) return 2;
  if (kind == TaskKind::kMultipleChoice || (kind == TaskKind::kRegression && labels.empty())) return 1;
  return static_cast<int64_t>(labels.size());
}

bool smaller_is_better(const std::string& metric) { return metric == "loss" || metric == "mse" || metric == "mae"; }

const std::vector<std::string>& task_names() {
  static const Names kNames = [] {
    Names names;
    for (const auto& [name, task] : table()) names.push_back(name);
    return names;
  }();
  return kNames;
}

std::optional<TaskKind> kind_of_task(const std::string& name) {
  for (const auto& [key, task] : table()) {
    if (key == name) return task.kind;
  }
  return std::nullopt;
}

TaskDefinition task_definition(const std::string& name) {
  for (const auto& [key, task] : table()) {
    if (key != name) continue;
    TaskDefinition result = task;
    result.name = name;
    return result;
  }
  throw std::out_of_range("no task " + name);
}

void apply_settings(TaskDefinition& task, const TaskDataConfig& config) {
  task.label_scheme = config.label_scheme;
  task.negative_label = config.negative_label;
  if (!task.negative_label.empty()) task.metrics.insert(task.metrics.begin(), {"f1_micro", "precision", "recall"});
}

std::string find_task_file(const TaskFile& file, const std::string& directory, const std::string& language) {
  for (const std::string& name : file.names) {
    const std::filesystem::path path = std::filesystem::path(directory) / replaced(name, "{}", language);
    std::error_code none;
    if (std::filesystem::exists(path, none)) return path.string();
  }
  return "";
}

}  // namespace bert
