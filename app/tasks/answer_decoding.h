// Start and end logits to the best answers of each question.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "data/tasks/task_data.h"

namespace bert {

/// An answer and its logits. The answer "" means that there is none.
struct ScoredSpan {
  std::string text;
  int64_t begin = 0, end = 0;  // bytes of the context: the answer is in [begin, end), with spaces as they are there
  double start_logit = 0, end_logit = 0;
  double probability = 0;  // softmax over the sums of logits of the n best
  /// Softmax of the start over the context's tokens times that of the end: the score of transformers' pipeline. 0 for "".
  double span_probability = 0;

  [[nodiscard]] double score() const { return start_logit + end_logit; }
};

/// The answers of one question.
struct QuestionAnswers {
  std::vector<ScoredSpan> n_best;  // at least one, best first; SQuAD 2.0: "" is one of them
  std::string best;                // the best that is not ""; "" if there is none
  /// Score of "" minus that of `best`, or minus 0 without one. SQuAD 1.1: below every threshold.
  double null_score_diff = -std::numeric_limits<double>::infinity();

  /// `best`, or "" if the difference exceeds `threshold`.
  [[nodiscard]] const std::string& at_threshold(double threshold) const;
};

/// The answer to a question for which the n best starts and ends make no answer. kOfGoogle: "empty" in SQuAD 1.1, as
/// run_squad.py writes into its files. kAnySpan: the best of all starts and ends.
enum class WithoutCandidate : uint8_t { kOfGoogle, kAnySpan };

/// The answers of all questions. `logits`: TaskFeatures, all finite. The null score of a question is the lowest of its
/// own windows. Source: run_squad.py (write_predictions).
std::vector<QuestionAnswers> decode_answers(const TaskExamples& examples, const TaskFeatures& features,
                                            std::span<const float> logits, const Tokenizer& tokenizer,
                                            const TaskDataConfig& config,
                                            WithoutCandidate without = WithoutCandidate::kOfGoogle);

}  // namespace bert
