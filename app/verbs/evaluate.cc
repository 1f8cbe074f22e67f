#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/cli/command_line.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/tasks/task_scoring.h"
#include "app/verbs/verbs.h"
#include "data/io/error.h"
#include "data/tasks/task_data.h"

namespace bert {
namespace {

/// The words of the command line.
struct Options {
  std::string task, dataset, directory;
  bool v2 = false;
  PredictionFiles files;
  TaskDataConfig data;
};

/// The definition of the task. "squad" with --v2 is squad-v2, else squad-v1.
TaskDefinition definition_of(const Options& options) {
  const bool squad = options.task == "squad";
  if (options.v2 && !squad && options.task != "squad-v2")
    throw UsageError(fmt::format("--v2 is for squad, not for {}", options.task));
  TaskDefinition task = task_definition(squad ? options.v2 ? "squad-v2" : "squad-v1" : options.task);
  if (!options.files.null_scores.empty() && !task.no_answers)
    throw UsageError("--na-prob-file is for SQuAD 2.0: add --v2");
  return task;
}

/// The development file of the task that has the name of `path`; the first one if none has.
TaskFile file_named(const TaskDefinition& task, const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  const TaskFile* first = nullptr;
  for (const TaskFile& file : task.files) {
    if (file.split != TaskSplit::kDev) continue;
    if (std::find(file.names.begin(), file.names.end(), name) != file.names.end()) return file;
    if (first == nullptr) first = &file;
  }
  return *first;
}

/// The development file in the directory that the command line names.
std::string find_dataset(const TaskDefinition& task, const std::string& directory) {
  std::string names;
  for (const TaskFile& file : task.files) {
    if (file.split != TaskSplit::kDev) continue;
    if (std::string path = find_task_file(file, directory); !path.empty()) return path;
    for (const std::string& name : file.names) names += (names.empty() ? "" : ", ") + name;
  }
  throw InputMissing(fmt::format("{}: no development file of {}; want one of {}", directory, task.name, names));
}

nlohmann::ordered_json as_object(const std::vector<TaskMetric>& metrics) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const TaskMetric& metric : metrics) {
    if (metric.name.ends_with("total")) {
      object[metric.name] = static_cast<int64_t>(metric.value);
    } else {
      object[metric.name] = metric.value;
    }
  }
  return object;
}

}  // namespace

int evaluate_command(int argc, char** argv) {
  Options options;
  CLI::App app{"Scores a file of predictions as the task's official script does. Prints one JSON object.",
               "bert evaluate"};
  std::vector<std::string> names = task_names();
  names.insert(names.begin(), "squad");
  app.add_option("task", options.task, fmt::format("one of {}", fmt::join(names, " ")))
      ->required()
      ->check(CLI::IsMember(names))
      ->option_text("TASK");
  auto* dataset = app.add_option("--dataset", options.dataset, "file with the right answers");
  auto* directory = app.add_option("--data-directory", options.directory, "directory with the development file");
  dataset->excludes(directory);
  app.add_option("--predictions", options.files.predictions,
                 "SQuAD: JSON, answers by id; ner: columns, the word first and the label last; others: TSV with the "
                 "columns index and prediction (GLUE's submission format)")
      ->required();
  app.add_flag("--v2", options.v2, "squad: the data set is SQuAD 2.0");
  auto* null_scores = app.add_option("--na-prob-file", options.files.null_scores,
                                     "SQuAD 2.0: JSON, scores of having no answer by id (null_odds.json)");
  app.add_option("--na-prob-thresh", options.files.null_threshold, "SQuAD 2.0: no answer where that score exceeds this")
      ->check(number_in(-1e9, 1e9))
      ->capture_default_str()
      ->needs(null_scores);
  app.add_option("--text-column", options.data.text_column, "own tables: column of the text")->capture_default_str();
  app.add_option("--label-column", options.data.label_column, "own tables: column of the label")->capture_default_str();
  app.add_option("--word-column", options.data.word_column, "ner: column of the words in the data set, from 0")
      ->check(number_in<int64_t>(-100, 100))
      ->capture_default_str();
  app.add_option("--tag-column", options.data.tag_column, "ner: column of the labels in the data set; -1: the last")
      ->check(number_in<int64_t>(-100, 100))
      ->capture_default_str();
  app.add_option("--labels", options.data.labels, "text-classification: all labels; default: those of the data set");
  app.footer(
      "The index of an example is its row in the data set, from 0. mnli with --data-directory is the matched set; name "
      "the mismatched one with --dataset.\n\n"
      "Example: bert evaluate squad --dataset dev-v1.1.json --predictions predictions.json");
  if (!parse_command_line(app, argc, argv)) return kOk;
  TaskDefinition task = definition_of(options);
  if (options.dataset.empty() && options.directory.empty())
    throw UsageError("want --dataset or --data-directory; see bert evaluate --help");
  const std::string path = options.dataset.empty() ? find_dataset(task, options.directory) : options.dataset;
  find_labels(task, path, options.data);
  const TaskExamples examples = read_task(task, file_named(task, path), path, options.data);
  const FileScores scores = score_prediction_file(examples, options.files);
  if (scores.unanswered > 0) {
    std::cerr << fmt::format("bert evaluate: {} of {} questions have no prediction; they score 0\n", scores.unanswered,
                             examples.size());
  }
  std::cout << as_object(scores.metrics).dump() << '\n';
  return kOk;
}

}  // namespace bert
