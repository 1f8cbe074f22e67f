// Metrics of classification and regression, as scikit-learn and scipy define them. Where a metric is undefined, such as
// a correlation with a constant, the result is 0.
#pragma once

#include <cstdint>
#include <span>

namespace bert {

/// Share of equal pairs. Source: sklearn.metrics.accuracy_score.
double accuracy(std::span<const int32_t> labels, std::span<const int32_t> predictions);

/// F1 of the class `positive`. Source: sklearn.metrics.f1_score (average="binary").
double f1_of_class(std::span<const int32_t> labels, std::span<const int32_t> predictions, int32_t positive);

/// Mean of the F1 of all classes that occur in either list. Source: sklearn.metrics.f1_score (average="macro").
double macro_f1(std::span<const int32_t> labels, std::span<const int32_t> predictions, int32_t num_classes);

/// Precision, recall and F1 of all classes but `negative` together; 0 where a denominator is 0. Source:
/// sklearn.metrics.precision_recall_fscore_support (labels without the negative one, average="micro").
struct MicroScores {
  double precision = 0, recall = 0, f1 = 0;
};
MicroScores micro_scores(std::span<const int32_t> labels, std::span<const int32_t> predictions, int32_t negative);

/// Source: sklearn.metrics.matthews_corrcoef, for any number of classes.
double matthews_correlation(std::span<const int32_t> labels, std::span<const int32_t> predictions, int32_t num_classes);

/// Source: scipy.stats.pearsonr.
double pearson(std::span<const double> x, std::span<const double> y);

/// Pearson's correlation of the ranks; equal values share the mean of their ranks. Source: scipy.stats.spearmanr.
double spearman(std::span<const double> x, std::span<const double> y);

/// Source: sklearn.metrics.mean_squared_error.
double mean_squared_error(std::span<const double> labels, std::span<const double> predictions);

/// Source: sklearn.metrics.mean_absolute_error.
double mean_absolute_error(std::span<const double> labels, std::span<const double> predictions);

/// The coefficient of determination; of equal labels 1 if the predictions are right, else 0. Source:
/// sklearn.metrics.r2_score.
double r2_score(std::span<const double> labels, std::span<const double> predictions);

}  // namespace bert
