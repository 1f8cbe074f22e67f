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

/// Source: sklearn.metrics.matthews_corrcoef, for any number of classes.
double matthews_correlation(std::span<const int32_t> labels, std::span<const int32_t> predictions, int32_t num_classes);

/// Source: scipy.stats.pearsonr.
double pearson(std::span<const double> x, std::span<const double> y);

/// Pearson's correlation of the ranks; equal values share the mean of their ranks. Source: scipy.stats.spearmanr.
double spearman(std::span<const double> x, std::span<const double> y);

}  // namespace bert
