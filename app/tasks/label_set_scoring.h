// Predictions of a multi-label task, their metrics, and the thresholds of its labels.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/config/model_description.h"
#include "app/tasks/prediction_files.h"
#include "app/tasks/task_scoring.h"

namespace bert {

/// The beginning of the names of probabilities' columns in a file of predictions; the label follows.
inline constexpr std::string_view kScoreColumn = "score:";

/// The name of a threshold among the figures of a run: that of all labels, and that of one.
inline constexpr const char* kLabelThresholdFigure = "label_threshold";
std::string label_threshold_figure(const std::string& label);

/// The thresholds of the labels among the figures of a run; empty if these have none.
std::vector<double> thresholds_in(const std::map<std::string, double>& figures, const std::vector<std::string>& labels);

/// Gives `model`, of a run with these figures, the thresholds that were searched: those of labels, if it has none, and
/// that of questions without an answer.
void take_thresholds(const std::map<std::string, double>& figures, ModelDescription& model);

/// score_task() of independent labels. `logits`: [examples, labels]. A label is predicted where its probability exceeds
/// its threshold.
TaskScores score_label_sets(const TaskExamples& examples, std::span<const float> logits, const TaskDataConfig& config);

/// The metrics of TaskDefinition::metrics; without predictions.scores, the three F1 alone. `examples` have labels.
std::vector<TaskMetric> label_set_metrics(const TaskExamples& examples, const TaskPredictions& predictions);

}  // namespace bert
