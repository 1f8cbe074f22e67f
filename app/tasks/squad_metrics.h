// The official scores of SQuAD 1.1 and 2.0.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/tasks/squad.h"

namespace bert {

/// An answer without case, punctuation, articles and extra white space. Source: evaluate-v1.1.py (normalize_answer).
std::string normalize_answer(const std::string& text);

/// Scores of one answer, or means: 0 to 1 for one answer, 0 to 100 for means.
struct AnswerScore {
  double exact_match = 0, f1 = 0;
};

/// The best score of `answer` against the question's answers. Source: evaluate-v1.1.py, evaluate-v2.0.py. With
/// `no_answers` (2.0), "" is right for a question without answers, and empty texts match each other alone.
AnswerScore score_answer(const SquadQuestion& question, const std::string& answer, bool no_answers);

/// A question's score and the score of having no answer, in the order of a file of the latter.
struct ScoredAnswer {
  double null_score = 0;
  double score = 0;         // of the answer
  bool has_answers = true;  // the question has
  bool is_empty = false;    // the answer is ""
};

/// The mean score, 0 to 100, with the best threshold, and that threshold.
struct BestThreshold {
  double score = 0, threshold = 0;
  bool none = true;  // no threshold beats having no answer at all: `score` is of that, `threshold` the official 0
};

/// The threshold with the highest sum of scores, if answers with a higher null score are replaced by none. `questions`:
/// the number of questions. Source: evaluate-v2.0.py (find_best_thresh).
BestThreshold find_best_threshold(std::vector<ScoredAnswer> answers, size_t questions);

/// Answers by the ids of questions.
using SquadPredictions = std::unordered_map<std::string, std::string>;

/// Null scores by the ids of questions, in the order of their file.
using NullScores = std::vector<std::pair<std::string, double>>;

struct SquadEvaluation {
  std::vector<std::pair<std::string, double>> metrics;  // exact_match, f1; with no_answers also the names of 2.0
  int64_t unanswered = 0;                               // questions without a prediction, which score 0 (1.1)
};

/// The official metrics. `null_scores` may be empty; otherwise answers whose null score exceeds `threshold` count as "",
/// and the result has the best thresholds. Throws DataError if a question lacks a null score or, with `no_answers`, a
/// prediction, and if no question has a prediction.
SquadEvaluation evaluate_squad(const SquadDataset& data, const SquadPredictions& predictions, bool no_answers,
                               const NullScores& null_scores = {}, double threshold = 1);

}  // namespace bert
