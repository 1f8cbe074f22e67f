#include "app/tasks/task_scoring.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>

#include "app/tasks/answer_decoding.h"
#include "app/tasks/entity_metrics.h"
#include "app/tasks/flat_json.h"
#include "app/tasks/label_set_scoring.h"
#include "app/tasks/prediction_files.h"
#include "app/tasks/squad_metrics.h"
#include "app/tasks/text_metrics.h"
#include "data/io/error.h"
#include "data/tasks/label_sets.h"
#include "data/tasks/table_reader.h"

namespace bert {
namespace {

int32_t best_of(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

/// Checks the logits before they are read.
void check_logits(const TaskFeatures& features, std::span<const float> logits) {
  const int64_t wanted = features.logit_offsets().back();
  if (static_cast<int64_t>(logits.size()) != wanted)
    throw std::invalid_argument(fmt::format("want {} logits, got {}", wanted, logits.size()));
  if (!std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }))
    throw DataError("the model's output is not finite; its weights are damaged, or it has diverged");
}

TaskPredictions predict_classes(const TaskExamples& examples, const TaskFeatures& features,
                                std::span<const float> logits) {
  TaskPredictions predictions;
  const auto columns = static_cast<size_t>(features.num_outputs);
  for (size_t row = 0; row < examples.texts.size(); ++row)
    predictions.classes.push_back(best_of(logits.subspan(row * columns, columns)));
  return predictions;
}

TaskPredictions predict_choices(const TaskExamples& examples, std::span<const float> logits) {
  TaskPredictions predictions;
  size_t at = 0;
  for (const TextExample& example : examples.texts) {
    predictions.classes.push_back(best_of(logits.subspan(at, example.choices.size())));
    at += example.choices.size();
  }
  return predictions;
}

/// A word without tokens gets the label O, or the first label if there is no O.
TaskPredictions predict_tags(const TaskExamples& examples, const TaskFeatures& features,
                             std::span<const float> logits) {
  const std::vector<std::string>& labels = examples.task.labels;
  const std::string& outside = std::find(labels.begin(), labels.end(), "O") != labels.end() ? "O" : labels.front();
  TaskPredictions predictions;
  for (const TaggedSentence& sentence : examples.sentences)
    predictions.tags.emplace_back(sentence.words.size(), outside);
  const auto columns = static_cast<size_t>(features.num_outputs);
  size_t token = 0;
  for (const TaskSequence& sequence : features.sequences) {
    for (const int32_t word : sequence.token_words) {
      const int32_t best = best_of(logits.subspan(columns * token++, columns));
      if (word < 0) continue;
      predictions.tags[static_cast<size_t>(sequence.example)][static_cast<size_t>(word)] =
          labels[static_cast<size_t>(best)];
    }
  }
  return predictions;
}

std::vector<int32_t> labels_of(const TaskExamples& examples) {
  std::vector<int32_t> labels;
  for (const TextExample& example : examples.texts) labels.push_back(example.label);
  return labels;
}

std::vector<TaskMetric> tag_metrics(const TaskExamples& examples, const TaskPredictions& predictions) {
  std::vector<std::vector<std::string>> labels;
  for (const TaggedSentence& sentence : examples.sentences) {
    labels.emplace_back();
    for (const int32_t tag : sentence.tags) labels.back().push_back(examples.task.labels[static_cast<size_t>(tag)]);
  }
  const EntityScores scores = entity_scores(labels, predictions.tags, examples.task.label_scheme);
  return {{"f1", scores.f1}, {"precision", scores.precision}, {"recall", scores.recall}, {"accuracy", scores.accuracy}};
}

double class_metric(const std::string& name, const TaskExamples& examples, const std::vector<int32_t>& predictions) {
  const std::vector<int32_t> labels = labels_of(examples);
  const auto classes = static_cast<int32_t>(examples.task.labels.size());
  if (name == "accuracy") return accuracy(labels, predictions);
  if (!examples.task.negative_label.empty() && name != "f1" && name != "matthews_correlation") {
    const auto negative = std::ranges::find(examples.task.labels, examples.task.negative_label);
    const MicroScores scores =
        micro_scores(labels, predictions, static_cast<int32_t>(negative - examples.task.labels.begin()));
    return name == "precision" ? scores.precision : name == "recall" ? scores.recall : scores.f1;
  }
  if (name == "matthews_correlation") return matthews_correlation(labels, predictions, classes);
  return classes == 2 ? f1_of_class(labels, predictions, 1) : macro_f1(labels, predictions, classes);
}

double value_metric(const std::string& name, std::span<const double> labels, std::span<const double> predictions) {
  if (name == "pearson") return pearson(labels, predictions);
  if (name == "spearman") return spearman(labels, predictions);
  if (name == "mse") return mean_squared_error(labels, predictions);
  return name == "mae" ? mean_absolute_error(labels, predictions) : r2_score(labels, predictions);
}

/// The mean over the numbers of a text, then each.
std::vector<TaskMetric> value_metrics(const TaskExamples& examples, const TaskPredictions& predictions) {
  const auto columns = static_cast<size_t>(examples.task.num_outputs());
  std::vector<TaskMetric> means, each;
  for (const std::string& name : examples.task.metrics) means.push_back({name, 0});
  for (size_t column = 0; column < columns; ++column) {
    std::vector<double> labels, predicted;
    for (size_t i = 0; i < examples.texts.size(); ++i) {
      labels.push_back(examples.texts[i].values[column]);
      predicted.push_back(predictions.values[i * columns + column]);
    }
    for (TaskMetric& mean : means) {
      const double value = value_metric(mean.name, labels, predicted);
      mean.value += value / static_cast<double>(columns);
      if (columns > 1) each.push_back({mean.name + "_" + examples.task.labels[column], value});
    }
  }
  means.insert(means.end(), each.begin(), each.end());
  return means;
}

std::vector<TaskMetric> metrics_of(const TaskExamples& examples, const TaskPredictions& predictions) {
  if (examples.task.kind == TaskKind::kTokenClassification) return tag_metrics(examples, predictions);
  if (examples.task.multi_label) return label_set_metrics(examples, predictions);
  std::vector<TaskMetric> metrics;
  if (examples.task.kind == TaskKind::kRegression) {
    metrics = value_metrics(examples, predictions);
  } else {
    for (const std::string& name : examples.task.metrics)
      metrics.push_back({name, class_metric(name, examples, predictions.classes)});
  }
  if (const std::string& part = examples.source.part; part == "mismatched" || part == "diagnostic") {
    for (TaskMetric& metric : metrics) metric.name += "_" + part;
  }
  return metrics;
}

std::vector<TaskMetric> squad_metrics(const SquadEvaluation& evaluation) {
  std::vector<TaskMetric> metrics;
  for (const auto& [name, value] : evaluation.metrics) metrics.push_back({name, value});
  return metrics;
}

/// The threshold with the best F1 of the answers. It is below all null scores if having no answer at all is best.
double search_threshold(const SquadDataset& data, const std::vector<QuestionAnswers>& answers) {
  std::vector<ScoredAnswer> scored;
  for (size_t i = 0; i < answers.size(); ++i) {
    const SquadQuestion& question = data.questions[i];
    scored.push_back({.null_score = answers[i].null_score_diff,
                      .score = score_answer(question, answers[i].best, true).f1,
                      .has_answers = !question.answers.empty(),
                      .is_empty = answers[i].best.empty()});
  }
  double lowest = std::numeric_limits<double>::infinity();
  for (const ScoredAnswer& answer : scored) lowest = std::min(lowest, answer.null_score);
  const BestThreshold best = find_best_threshold(std::move(scored), answers.size());
  return best.none ? std::nextafter(lowest, -std::numeric_limits<double>::infinity()) : best.threshold;
}

TaskScores score_squad(const TaskExamples& examples, const TaskFeatures& features, std::span<const float> logits,
                       const Tokenizer& tokenizer, const TaskDataConfig& config) {
  const SquadDataset& data = examples.squad;
  const std::vector<QuestionAnswers> answers = decode_answers(examples, features, logits, tokenizer, config);
  const bool no_answers = examples.task.no_answers, test = examples.source.split == TaskSplit::kTest;
  TaskScores scores;
  scores.null_threshold = config.null_score_diff_threshold;
  if (no_answers && config.search_null_threshold && examples.has_labels && !test)
    scores.null_threshold = search_threshold(data, answers);
  const std::string prefix = test ? "test_" : "";
  scores.outputs = {{prefix + "predictions.json", predictions_json(data, answers, scores.null_threshold)},
                    {prefix + "nbest_predictions.json", n_best_json(data, answers)}};
  if (no_answers) scores.outputs.push_back({prefix + "null_odds.json", null_odds_json(data, answers)});
  if (!examples.has_labels) return scores;
  SquadPredictions predictions;
  for (size_t i = 0; i < answers.size(); ++i)
    predictions.emplace(data.questions[i].id, answers[i].at_threshold(scores.null_threshold));
  scores.metrics = squad_metrics(evaluate_squad(data, predictions, no_answers));
  return scores;
}

}  // namespace

std::vector<std::string> figures_of(const std::vector<std::string>& metrics,
                                    const std::map<std::string, double>& figures) {
  std::vector<std::string> names;
  for (const std::string& metric : metrics) {
    for (const auto& [name, value] : figures) {
      const bool of_other =
          name != metric && std::ranges::find(metrics, name) != metrics.end();  // f1_micro is not of f1
      if (name == metric || (name.starts_with(metric + "_") && !of_other)) names.push_back(name);
    }
  }
  return names;
}

std::string main_figure(const TaskDefinition& task, const std::map<std::string, double>& figures) {
  const std::vector<std::string> names = figures_of({task.main_metric()}, figures);
  return names.empty() ? task.main_metric() : names.front();
}

TaskScores score_task(const TaskExamples& examples, const TaskFeatures& features, std::span<const float> logits,
                      const Tokenizer& tokenizer, const TaskDataConfig& config) {
  check_logits(features, logits);
  TaskPredictions predictions;
  switch (examples.task.kind) {
    case TaskKind::kQuestionAnswering:
      return score_squad(examples, features, logits, tokenizer, config);
    case TaskKind::kTokenClassification:
      predictions = predict_tags(examples, features, logits);
      break;
    case TaskKind::kMultipleChoice:
      predictions = predict_choices(examples, logits);
      break;
    case TaskKind::kRegression:
      predictions.values.assign(logits.begin(), logits.end());
      if (!examples.task.scores) break;
      for (double& value : predictions.values) value = 1 / (1 + std::exp(-value));
      break;
    case TaskKind::kClassification:
      if (examples.task.multi_label) return score_label_sets(examples, logits, config);
      predictions = predict_classes(examples, features, logits);
      break;
    case TaskKind::kEmbedding:
      throw std::invalid_argument("score_task: embeddings have no logits");
  }
  TaskScores scores;
  const bool tags = examples.task.kind == TaskKind::kTokenClassification;
  scores.outputs = {
      {examples.source.output, tags ? tagged_lines(examples, predictions) : submission_table(examples, predictions)}};
  if (examples.has_labels) scores.metrics = metrics_of(examples, predictions);
  return scores;
}

std::vector<std::string> predicted_labels(const PredictionFiles& files, bool sets) {
  TableReader table(files.predictions, {{"prediction"}}, {.format = TableFormat::kTsv, .header = {}});
  std::set<std::string> labels;
  for (const std::string& name : table.header()) {
    if (sets && name.starts_with(kScoreColumn)) labels.insert(name.substr(kScoreColumn.size()));
  }
  while (table.next()) {
    if (sets) {
      labels.merge(labels_in_cell(table, 0, files.label_separator));
    } else {
      labels.insert(table.cell(0));
    }
  }
  return {labels.begin(), labels.end()};
}

FileScores score_prediction_file(const TaskExamples& examples, const PredictionFiles& files) {
  if (!examples.has_labels) throw DataError(examples.file + ": the file has no labels to compare predictions with");
  if (examples.task.kind != TaskKind::kQuestionAnswering) {
    const bool tags = examples.task.kind == TaskKind::kTokenClassification;
    return {.metrics = metrics_of(examples, tags ? read_tagged_lines(examples, files.predictions)
                                                 : read_submission_table(examples, files))};
  }
  const auto predictions = read_json_texts(files.predictions);
  NullScores null_scores;
  if (!files.null_scores.empty()) null_scores = read_json_numbers(files.null_scores);
  try {
    const SquadEvaluation evaluation = evaluate_squad(examples.squad, {predictions.begin(), predictions.end()},
                                                      examples.task.no_answers, null_scores, files.null_threshold);
    return {.metrics = squad_metrics(evaluation), .unanswered = evaluation.unanswered};
  } catch (const DataError& error) {
    throw DataError(fmt::format("{} for {}: {}", files.predictions, examples.file, error.what()));
  }
}

}  // namespace bert
