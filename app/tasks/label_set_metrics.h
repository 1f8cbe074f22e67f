// Metrics of independent labels, as scikit-learn defines them. Where a quotient is undefined, it is 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace bert {

/// A matrix of examples and labels, row-major: [examples, labels] of 0 and 1, or of scores.
using LabelMatrix = std::span<const uint8_t>;
using ScoreMatrix = std::span<const double>;

/// F1 of all entries together. Source: sklearn.metrics.f1_score (average="micro").
double micro_f1(LabelMatrix right, LabelMatrix predicted);

/// Mean of the F1 of the labels. Source: sklearn.metrics.f1_score (average="macro").
double macro_f1_of_sets(LabelMatrix right, LabelMatrix predicted, size_t labels);

/// Mean of the F1 of the examples. Source: sklearn.metrics.f1_score (average="samples").
double sample_f1(LabelMatrix right, LabelMatrix predicted, size_t labels);

/// The area under the curve of precision over recall, as steps; scores that are equal are one step. 0 if nothing is
/// right. Source: sklearn.metrics.average_precision_score.
double average_precision(LabelMatrix right, ScoreMatrix scores);

/// Mean of the average precision of the labels; 0 for a label that no example has. Source:
/// sklearn.metrics.average_precision_score (average="macro").
double macro_average_precision(LabelMatrix right, ScoreMatrix scores, size_t labels);

/// Source: sklearn.metrics.label_ranking_average_precision_score.
double label_ranking_average_precision(LabelMatrix right, ScoreMatrix scores, size_t labels);

/// The threshold with the best F1 of scores above it, in the middle between two scores; the highest of equal ones.
/// `otherwise` if nothing is right.
double best_f1_threshold(LabelMatrix right, ScoreMatrix scores, double otherwise);

}  // namespace bert
