#include "app/tasks/label_set_scoring.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/tasks/label_set_metrics.h"

namespace bert {
namespace {

/// Sets of labels as a matrix [examples, labels] of 0 and 1. `set_of(i)` has the labels of example i.
template <class SetOf>
std::vector<uint8_t> matrix_of(size_t examples, size_t labels, const SetOf& set_of) {
  std::vector<uint8_t> matrix(examples * labels);
  for (size_t i = 0; i < examples; ++i) {
    for (const int32_t label : set_of(i)) matrix[i * labels + static_cast<size_t>(label)] = 1;
  }
  return matrix;
}

std::vector<uint8_t> right_labels(const TaskExamples& examples) {
  return matrix_of(examples.texts.size(), examples.task.labels.size(),
                   [&](size_t i) -> const std::vector<int32_t>& { return examples.texts[i].labels; });
}

std::vector<double> search_label_thresholds(const std::vector<uint8_t>& right, const std::vector<double>& scores,
                                            size_t labels, const TaskDataConfig& config) {
  if (config.search_label_threshold == ThresholdSearch::kOne)
    return std::vector<double>(labels, best_f1_threshold(right, scores, config.label_threshold));
  std::vector<double> thresholds;
  for (size_t label = 0; label < labels; ++label) {
    std::vector<uint8_t> right_of_label;
    std::vector<double> scores_of_label;
    for (size_t at = label; at < right.size(); at += labels) {
      right_of_label.push_back(right[at]);
      scores_of_label.push_back(scores[at]);
    }
    thresholds.push_back(best_f1_threshold(right_of_label, scores_of_label, config.label_threshold));
  }
  return thresholds;
}

std::string label_set_table(const TaskExamples& examples, const TaskPredictions& predictions,
                            const std::string& separator) {
  const std::vector<std::string>& labels = examples.task.labels;
  std::string text = "index\tprediction";
  for (const std::string& label : labels) text += fmt::format("\t{}{}", kScoreColumn, label);
  text += '\n';
  for (size_t i = 0; i < examples.texts.size(); ++i) {
    text += examples.texts[i].id + '\t';
    for (const int32_t label : predictions.sets[i])
      text += (label == predictions.sets[i].front() ? "" : separator) + labels[static_cast<size_t>(label)];
    for (size_t label = 0; label < labels.size(); ++label)
      text += fmt::format("\t{}", predictions.scores[i * labels.size() + label]);
    text += '\n';
  }
  return text;
}

}  // namespace

std::string label_threshold_figure(const std::string& label) {
  return fmt::format("{}_{}", kLabelThresholdFigure, label);
}

std::vector<double> thresholds_in(const std::map<std::string, double>& figures,
                                  const std::vector<std::string>& labels) {
  if (const auto one = figures.find(kLabelThresholdFigure); one != figures.end())
    return std::vector<double>(labels.size(), one->second);
  std::vector<double> thresholds;
  for (const std::string& label : labels) {
    const auto found = figures.find(label_threshold_figure(label));
    if (found == figures.end()) return {};
    thresholds.push_back(found->second);
  }
  return thresholds;
}

void take_thresholds(const std::map<std::string, double>& figures, ModelDescription& model) {
  if (model.multi_label && model.label_thresholds.empty())
    model.label_thresholds = thresholds_in(figures, model.labels);
  if (const auto found = figures.find(kNullThresholdFigure); found != figures.end())
    model.null_threshold = found->second;
}

TaskScores score_label_sets(const TaskExamples& examples, std::span<const float> logits, const TaskDataConfig& config) {
  const size_t labels = examples.task.labels.size();
  TaskPredictions predictions;
  for (const float logit : logits) predictions.scores.push_back(1 / (1 + std::exp(-static_cast<double>(logit))));
  TaskScores scores;
  scores.label_thresholds = config.label_thresholds;
  if (config.search_label_threshold != ThresholdSearch::kNone && examples.has_labels &&
      examples.source.split != TaskSplit::kTest) {
    scores.label_thresholds = search_label_thresholds(right_labels(examples), predictions.scores, labels, config);
  }
  if (scores.label_thresholds.empty()) scores.label_thresholds.assign(labels, config.label_threshold);
  for (size_t i = 0; i < examples.texts.size(); ++i) {
    std::vector<int32_t>& set = predictions.sets.emplace_back();
    for (size_t label = 0; label < labels; ++label) {
      if (predictions.scores[i * labels + label] > scores.label_thresholds[label])
        set.push_back(static_cast<int32_t>(label));
    }
  }
  scores.outputs = {{examples.source.output, label_set_table(examples, predictions, config.label_separator)}};
  if (examples.has_labels) scores.metrics = label_set_metrics(examples, predictions);
  return scores;
}

std::vector<TaskMetric> label_set_metrics(const TaskExamples& examples, const TaskPredictions& predictions) {
  const size_t labels = examples.task.labels.size();
  const std::vector<uint8_t> right = right_labels(examples);
  const std::vector<uint8_t> predicted = matrix_of(
      examples.texts.size(), labels, [&](size_t i) -> const std::vector<int32_t>& { return predictions.sets[i]; });
  std::vector<TaskMetric> metrics = {{"f1_micro", micro_f1(right, predicted)},
                                     {"f1_macro", macro_f1_of_sets(right, predicted, labels)},
                                     {"f1_samples", sample_f1(right, predicted, labels)}};
  if (predictions.scores.empty()) return metrics;
  metrics.push_back({"average_precision", macro_average_precision(right, predictions.scores, labels)});
  metrics.push_back(
      {"label_ranking_average_precision", label_ranking_average_precision(right, predictions.scores, labels)});
  return metrics;
}

}  // namespace bert
