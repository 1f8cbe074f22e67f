#include "app/verbs/model/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "app/cli/choice.h"
#include "app/cli/command_line.h"
#include "app/cli/description.h"
#include "app/config/fields.h"
#include "app/retrieval/retrieval_files.h"
#include "app/retrieval/trec_run.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/tasks/task_scoring.h"
#include "app/verbs/model/evaluate_pretraining.h"
#include "app/verbs/model/retrieval_options.h"
#include "app/verbs/torch_verbs.h"
#include "app/verbs/verbs.h"
#include "data/io/error.h"
#include "data/tasks/table_reader.h"

namespace bert {
namespace {

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

nlohmann::ordered_json as_object(const std::vector<TaskMetric>& metrics) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const TaskMetric& metric : metrics) {
    if (metric.name == "total" || metric.name.ends_with("Ans_total")) {  // of SQuAD's script
      object[metric.name] = static_cast<int64_t>(metric.value);
    } else {
      object[metric.name] = metric.value;
    }
  }
  return object;
}

/// The object `data` of a configuration of fine-tuning, as far as a file of examples needs it.
struct EvaluatedData {
  TaskDataConfig data;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("data", self.data, "examples and their tokenization");
  }
};

void add_model_options(CLI::App& app, EvaluateOptions& options) {
  auto* checkpoint = app.add_option("--checkpoint", options.checkpoint,
                                    "fine-tuned run, checkpoint or export, or a model of transformers");
  app.add_option("--output-directory", options.output_directory,
                 "--checkpoint: directory for the files of predictions that bert finetune writes")
      ->needs(checkpoint);
  add_choice(app, "--device", options.device, "--checkpoint: auto takes cuda if there is a GPU")->needs(checkpoint);
  app.add_option(
         "--precision", options.precision,
         "--checkpoint: precision of the weights and of the computation; int8: the encoder's products are of bytes, on "
         "the CPU")
      ->check(CLI::IsMember({"fp32", "fp16", "bf16", "int8"}))
      ->default_str("fp32")
      ->needs(checkpoint);
  app.add_option_function<std::string>(
         "--long", [&options](const std::string& name) { options.long_texts = *value_named<LongTexts>(name); },
         "--checkpoint: examples with more tokens than data.max_seq_length, or of embedding than the model reads; "
         "truncate is the default, or what the model was trained with; see data.long_texts and data.window_pooling")
      ->check(CLI::IsMember({"refuse", "truncate", "windows"}))
      ->needs(checkpoint);
  app.add_flag("--raw-weights", options.raw_weights, "--checkpoint: the weights themselves, not their moving average")
      ->needs(checkpoint);
  app.add_flag("--trust", options.trust, "--checkpoint: also read a pickle of PyTorch, of which nothing is executed")
      ->needs(checkpoint);
}

void add_embedding_evaluation(CLI::App& app, EmbeddingEvaluation& options) {
  auto* beir = app.add_option("--beir", options.beir,
                              "embedding: directory with corpus.jsonl, queries.jsonl and qrels, in place of --dataset")
                   ->excludes(app.get_option("--dataset"))
                   ->excludes(app.get_option("--data-directory"));
  app.add_option("--split", options.split, "--beir: the file of qrels")->capture_default_str()->needs(beir);
  app.add_option("--run", options.run, "--beir: file for the rankings, in TREC's format")
      ->needs(beir)
      ->needs(app.get_option("--checkpoint"));
  app.add_option("--kind", options.kind, "embedding: what --dataset has; by default its columns say it")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kPairKinds), std::end(kPairKinds))))
      ->excludes(beir);
  add_prompt_options(app, options.prompts, "embedding: ");
}

/// Throws UsageError for options that do not go together.
void check_embedding_evaluation(const EvaluateOptions& options) {
  const EmbeddingEvaluation& embedding = options.embedding;
  if (options.task != kEmbeddingTask) {
    if (!embedding.beir.empty() || !embedding.kind.empty() || embedding.prompts.given())
      throw UsageError("--beir, --kind and prompts are for embedding, not for " + options.task);
    if (options.long_texts == LongTexts::kWindows && options.task == "swag")
      throw UsageError("--long windows is not for swag");
    return;
  }
  if (!options.output_directory.empty()) throw UsageError("embedding has no predictions: no --output-directory");
  if (options.checkpoint.empty() && embedding.beir.empty())
    throw UsageError("embedding needs --checkpoint, or --beir and a run in --predictions; see bert evaluate --help");
  if (embedding.prompts.given() && options.checkpoint.empty())
    throw UsageError("prompts need --checkpoint; see bert evaluate --help");
}

/// The metrics of a run of TREC's format, which is computed without a model.
int score_run_file(const EvaluateOptions& options) {
  const Judgments judgments = read_judgments(judgments_path(options.embedding.beir, options.embedding.split));
  std::vector<Ranking> rankings = read_trec_run(options.files.predictions);
  const int64_t missing = add_missing_rankings(rankings, judgments);
  if (missing > 0) {
    std::cerr << fmt::format("bert evaluate: {} of {} judged queries are not in the run; they score 0\n", missing,
                             judgments.queries.size());
  }
  print_metrics(score_rankings(rankings, judgments, /*prefix=*/""));
  return kOk;
}

}  // namespace

TaskDataConfig EvaluateOptions::changed(const TaskDataConfig& config) const {
  EvaluatedData evaluated{config};
  ConfigReport report;
  read_overrides(fields_of(evaluated), overrides, report);
  report.throw_if_any();
  return evaluated.data;
}

TaskDefinition definition_of(const EvaluateOptions& options) {
  const bool squad = options.task == "squad";
  if (options.v2 && !squad && options.task != "squad-v2")
    throw UsageError(fmt::format("--v2 is for squad, not for {}", options.task));
  if (options.task == kEmbeddingTask) return task_definition("stsb");  // pairs with scores
  TaskDefinition task = task_definition(squad ? options.v2 ? "squad-v2" : "squad-v1" : options.task);
  if (!options.files.null_scores.empty() && !task.no_answers)
    throw UsageError("--na-prob-file is for SQuAD 2.0: add --v2");
  return task;
}

std::string find_dataset(const EvaluateOptions& options, const TaskDefinition& task) {
  if (!options.dataset.empty()) return options.dataset;
  std::string names;
  for (const TaskFile& file : task.files) {
    if (file.split != TaskSplit::kDev) continue;
    if (std::string path = find_task_file(file, options.directory); !path.empty()) return path;
    for (const std::string& name : file.names) names += (names.empty() ? "" : ", ") + name;
  }
  throw InputMissing(fmt::format("{}: no development file of {}; want one of {}", options.directory, task.name, names));
}

TaskExamples read_examples(const TaskDefinition& task, const std::string& path, const TaskDataConfig& config,
                           TaskUse use) {
  return read_task(task, file_named(task, path), path, config, use);
}

void print_metrics(const std::vector<TaskMetric>& metrics) { std::cout << as_object(metrics).dump() << '\n'; }

bool parse_evaluate(int argc, char** argv, EvaluateOptions& options) {
  CLI::App app{
      "Scores a fine-tuned model, or a file of predictions, as the task's official script does. Prints one JSON "
      "object.",
      "bert evaluate"};
  std::vector<std::string> names = task_names();
  names.insert(names.begin(), "squad");
  app.add_option("task", options.task, "the task")->required()->check(CLI::IsMember(names))->option_text("TASK");
  auto* dataset = app.add_option("--dataset", options.dataset, "file with the right answers");
  auto* directory = app.add_option("--data-directory", options.directory, "directory with the development file");
  dataset->excludes(directory);
  auto* predictions =
      app.add_option("--predictions", options.files.predictions,
                     "SQuAD: JSON, answers by id; ner: columns, the word first and the label last; --beir: a run in "
                     "TREC's format; others: TSV with the columns index and prediction (GLUE's submission format)");
  add_model_options(app, options);
  add_embedding_evaluation(app, options.embedding);
  predictions->excludes(app.get_option("--checkpoint"));
  app.add_flag("--v2", options.v2, "squad: the data set is SQuAD 2.0");
  auto* null_scores = app.add_option("--na-prob-file", options.files.null_scores,
                                     "SQuAD 2.0: JSON, scores of having no answer by id (null_odds.json)")
                          ->needs(predictions);
  app.add_option("--na-prob-thresh", options.files.null_threshold, "SQuAD 2.0: no answer where that score exceeds this")
      ->check(number_in(-1e9, 1e9))
      ->capture_default_str()
      ->needs(null_scores);
  app.add_option("overrides", options.overrides,
                 "data.KEY=value, as in a configuration of bert finetune: data.text_column, data.text_pair_column, "
                 "data.label_column, data.labels, data.negative_label of one's own tables; data.language of xnli; with "
                 "--checkpoint data.max_seq_length and "
                 "data.doc_stride, by default those of the run, for models of other programs 384 in SQuAD, else 128")
      ->type_name(kKeyValue);
  app.footer(
      "Pre-trained models are evaluated by `bert evaluate pretraining`, which has its own --help.\n"
      "embedding: the data set has sentence1, sentence2 and score (correlation), sentence1, sentence2 and label (0 or "
      "1, best thresholds), or query and lists positive and negative in JSON lines (reranking; rerank reads these, "
      "too); --beir is retrieval. Metrics have the names of sentence-transformers' evaluators.\n"
      "The index of an example is its row in the data set, from 0. mnli with --data-directory is the matched set; name "
      "the mismatched one with --dataset.\n\n"
      "Example: bert evaluate squad --dataset dev-v1.1.json --predictions predictions.json\n"
      "         bert evaluate sst2 --data-directory glue/SST-2 --checkpoint runs/sst2\n"
      "         bert evaluate embedding --dataset sts.tsv --checkpoint all-MiniLM-L6-v2\n"
      "         bert evaluate embedding --beir scifact --checkpoint all-MiniLM-L6-v2 --run minilm.run");
  if (!parse_command_line(app, argc, argv)) return false;
  if (options.dataset.empty() && options.directory.empty() && options.embedding.beir.empty())
    throw UsageError("want --dataset or --data-directory, or --beir; see bert evaluate --help");
  if (options.files.predictions.empty() && options.checkpoint.empty())
    throw UsageError("want --predictions or --checkpoint; see bert evaluate --help");
  check_embedding_evaluation(options);
  static_cast<void>(options.changed({}));  // throws before the work
  return true;
}

namespace {

/// Finds the classes of labels and predictions together, as scikit-learn has them. Says which predictions are no labels,
/// and throws DataError if none is one.
void find_labels_of_both(const EvaluateOptions& options, const std::string& path, const TaskDataConfig& config,
                         TaskDefinition& task) {
  const bool own = task.layout == TaskLayout::kTable && task.kind == TaskKind::kClassification;
  if (!own) return find_labels(task, path, config, {}, TaskUse::kScoring);
  const std::vector<std::string> predicted = predicted_labels(options.files, task.multi_label);
  TaskDefinition of_file = task;
  find_labels(of_file, path, config, {}, TaskUse::kScoring);
  find_labels(task, path, config, predicted, TaskUse::kScoring);
  std::vector<std::string> strange;
  std::ranges::copy_if(predicted, std::back_inserter(strange), [&](const std::string& label) {
    return std::ranges::find(of_file.labels, label) == of_file.labels.end();
  });
  if (strange.empty()) return;
  const std::string message =
      fmt::format("{}: {} of the labels are not in {}: {}; the labels there are {}", options.files.predictions,
                  strange.size(), path, list_of(strange), list_of(of_file.labels));
  if (strange.size() == predicted.size()) throw DataError(message);
  std::cerr << "bert evaluate: " << message << '\n';
}

/// Gives the rows of an own table the ids of its column, which bert finetune writes into the predictions of a test file,
/// if the predictions have these and not the numbers of rows. Throws DataError if they may be both.
void take_ids(const std::string& predictions, const std::string& path, const TaskDataConfig& config,
              TaskExamples& examples) {
  TaskFile as_test = examples.source;
  as_test.split = TaskSplit::kTest;
  TaskExamples named;
  try {
    named = read_task(examples.task, as_test, path, config, TaskUse::kScoring);
  } catch (const DataError&) {
    return;  // its ids are not those of rows: one is there twice
  }
  std::set<std::string> rows, ids;
  bool same = true;
  for (size_t i = 0; i < examples.texts.size(); ++i) {
    rows.insert(examples.texts[i].id);
    ids.insert(named.texts[i].id);
    same = same && examples.texts[i].id == named.texts[i].id;
  }
  if (same) return;
  TableReader table(predictions, {{"index"}}, {.format = TableFormat::kTsv, .header = {}});
  bool by_row = true, by_id = true;
  while (table.next()) {
    by_row = by_row && rows.contains(table.cell(0));
    by_id = by_id && ids.contains(table.cell(0));
  }
  if (by_row && by_id)
    throw DataError(
        fmt::format("{}: its index may be a row of {} or an id there, and these differ; give the column {} "
                    "another name if it is a row",
                    predictions, path, examples.task.columns.id));
  if (by_id) examples.texts = std::move(named.texts);
}

}  // namespace

int evaluate_command(int argc, char** argv) {
  if (is_pretraining_evaluation(argc, argv)) return evaluate_pretraining_command(argc, argv);
  EvaluateOptions options;
  if (!parse_evaluate(argc, argv, options)) return kOk;
  TaskDefinition task = definition_of(options);
  if (!options.checkpoint.empty()) return run_in_torch_library(argc, argv);
  if (!options.embedding.beir.empty()) return score_run_file(options);
  const std::string path = find_dataset(options, task);
  const TaskDataConfig config = options.changed({});
  options.files.label_separator = config.label_separator;
  apply_settings(task, config);
  find_labels_of_both(options, path, config, task);
  TaskExamples examples = read_examples(task, path, config, TaskUse::kScoring);
  if (task.layout == TaskLayout::kTable) take_ids(options.files.predictions, path, config, examples);
  const FileScores scores = score_prediction_file(examples, options.files);
  if (scores.unanswered > 0) {
    std::cerr << fmt::format("bert evaluate: {} of {} questions have no prediction; they score 0\n", scores.unanswered,
                             examples.size());
  }
  print_metrics(scores.metrics);
  return kOk;
}

}  // namespace bert
