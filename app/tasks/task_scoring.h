// Logits, or files of predictions, to a task's predictions and official metrics.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "data/tasks/task_data.h"

namespace bert {

/// A metric under its plain name: accuracy, f1, matthews_correlation, pearson, spearman, mse, mae, r2, precision, recall,
/// exact_match, f1_micro (without TaskDefinition::negative_label). SQuAD's are 0 to 100, the others 0 to 1 (correlations
/// -1 to 1, errors from 0, r2 up to 1).
struct TaskMetric {
  std::string name;
  double value = 0;
};

/// The names in `figures` that belong to `metrics`, in their order: those metrics, and the same with an ending such as
/// _mismatched.
std::vector<std::string> figures_of(const std::vector<std::string>& metrics,
                                    const std::map<std::string, double>& figures);

/// The name in `figures` of the task's main metric: metrics.front(), or what stands for it where that is absent, as
/// accuracy_mismatched does for MNLI with one development file. If there is none, metrics.front().
std::string main_figure(const TaskDefinition& task, const std::map<std::string, double>& figures);

/// A file for the run directory.
struct TaskOutput {
  std::string name, content;
};

/// The name of TaskScores::null_threshold among the figures of a run: in summary.json, and in checkpoints.
inline constexpr const char* kNullThresholdFigure = "null_score_diff_threshold";

struct TaskScores {
  std::vector<TaskMetric> metrics;  // empty if the examples have no labels
  std::vector<TaskOutput> outputs;
  /// SQuAD 2.0: that of predictions.json. It is searched on development sets with config.search_null_threshold; other files
  /// take config.null_score_diff_threshold.
  double null_threshold = 0;
  /// Independent labels: that of each. They are searched on development sets with config.search_label_threshold; other
  /// files take config.label_thresholds or config.label_threshold.
  std::vector<double> label_thresholds = {};
};

/// Predictions and metrics of a model. `logits`: TaskFeatures. The features are not those for training. The outputs are,
/// by the kind of the task,
///   SQuAD: predictions.json, nbest_predictions.json and, where questions may have no answer, null_odds.json, as Google's
///     run_squad.py writes them. Names for a test file begin with test_;
///   ner: words with their labels and predictions in columns, as conlleval.pl reads them;
///   others: GLUE's submission format, TSV with the columns index and prediction; of independent labels the prediction
///     is the labels with config.label_separator between them, and a column score:LABEL has the probability of each; of
///     several numbers the columns are index and prediction:LABEL.
/// A metric of several numbers is the mean of that of each, which has the name METRIC_LABEL.
/// Own tables: f1 is that of the second of two labels, and the mean of all for more labels. Names of metrics for MNLI's
/// mismatched and diagnostic sets end in _mismatched and _diagnostic. Throws std::invalid_argument if `logits` has another size, DataError if
/// a logit is not finite.
TaskScores score_task(const TaskExamples& examples, const TaskFeatures& features, std::span<const float> logits,
                      const Tokenizer& tokenizer, const TaskDataConfig& config);

struct PredictionFiles {
  std::string predictions;            // path
  std::string null_scores;            // SQuAD 2.0: path of null_odds.json or the like; empty: none
  double null_threshold = 1;          // answers whose null score exceeds it count as none (evaluate-v2.0.py)
  std::string label_separator = ",";  // of independent labels
};

struct FileScores {
  std::vector<TaskMetric> metrics;
  int64_t unanswered = 0;  // SQuAD 1.1: questions without a prediction, which score 0
};

/// The classes in a file of predictions in GLUE's submission format, each once; with `sets`, a prediction is a set of
/// labels. Throws as score_prediction_file().
std::vector<std::string> predicted_labels(const PredictionFiles& files, bool sets = false);

/// Metrics of a file of predictions in the format of `outputs` above. Throws DataError, which names the file and the line
/// or id, for predictions that are missing, double or unknown, and for examples without labels; InputMissing; IoError.
FileScores score_prediction_file(const TaskExamples& examples, const PredictionFiles& files);

}  // namespace bert
