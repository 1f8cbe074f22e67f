// Predictions as files: those that are written, and those that are scored.
#pragma once

#include <string>
#include <vector>

#include "app/tasks/answer_decoding.h"
#include "app/tasks/squad_metrics.h"
#include "app/tasks/task_scoring.h"
#include "data/tasks/task_data.h"

namespace bert {

/// Predictions for the examples of one file: one of the lists is used, by the kind of the task.
struct TaskPredictions {
  std::vector<int32_t> classes;                // classification and multiple choice
  std::vector<double> values;                  // [examples, numbers] of regression
  std::vector<std::vector<int32_t>> sets;      // independent labels, ascending
  std::vector<double> scores;                  // [examples, labels] of independent labels; empty: unknown
  std::vector<std::vector<std::string>> tags;  // for each sentence, one for each of its words
};

/// GLUE's submission format: a header, then id and label (or numbers) in each line.
std::string submission_table(const TaskExamples& examples, const TaskPredictions& predictions);

/// Lines "word label prediction", or "word prediction" without labels; an empty line behind each sentence.
std::string tagged_lines(const TaskExamples& examples, const TaskPredictions& predictions);

/// Google's predictions.json, nbest_predictions.json and null_odds.json: objects in the order of the questions.
std::string predictions_json(const SquadDataset& data, const std::vector<QuestionAnswers>& answers, double threshold);
std::string n_best_json(const SquadDataset& data, const std::vector<QuestionAnswers>& answers);
std::string null_odds_json(const SquadDataset& data, const std::vector<QuestionAnswers>& answers);

/// Reads files of the formats above. Errors: score_prediction_file().
TaskPredictions read_submission_table(const TaskExamples& examples, const PredictionFiles& files);
TaskPredictions read_tagged_lines(const TaskExamples& examples, const std::string& path);

}  // namespace bert
