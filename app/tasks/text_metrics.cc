#include "app/tasks/text_metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace bert {
namespace {

/// Counts of one class.
struct ClassCounts {
  double labels = 0, predictions = 0, both = 0;
  [[nodiscard]] double f1() const { return labels + predictions == 0 ? 0 : 2 * both / (labels + predictions); }
};

std::vector<ClassCounts> count_classes(std::span<const int32_t> labels, std::span<const int32_t> predictions,
                                       int32_t num_classes) {
  std::vector<ClassCounts> counts(static_cast<size_t>(num_classes));
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto label = static_cast<size_t>(labels[i]), prediction = static_cast<size_t>(predictions[i]);
    counts[label].labels += 1;
    counts[prediction].predictions += 1;
    if (label == prediction) counts[label].both += 1;
  }
  return counts;
}

/// Ranks from 1; equal values share the mean of their ranks.
std::vector<double> ranks(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> result(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double mean = static_cast<double>(begin + 1 + end) / 2;
    for (; begin < end; ++begin) result[order[begin]] = mean;
  }
  return result;
}

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

double accuracy(std::span<const int32_t> labels, std::span<const int32_t> predictions) {
  if (labels.empty()) return 0;
  int64_t same = 0;
  for (size_t i = 0; i < labels.size(); ++i) same += labels[i] == predictions[i];
  return static_cast<double>(same) / static_cast<double>(labels.size());
}

double f1_of_class(std::span<const int32_t> labels, std::span<const int32_t> predictions, int32_t positive) {
  ClassCounts counts;
  for (size_t i = 0; i < labels.size(); ++i) {
    counts.labels += labels[i] == positive;
    counts.predictions += predictions[i] == positive;
    counts.both += labels[i] == positive && predictions[i] == positive;
  }
  return counts.f1();
}

double macro_f1(std::span<const int32_t> labels, std::span<const int32_t> predictions, int32_t num_classes) {
  double sum = 0, classes = 0;
  for (const ClassCounts& counts : count_classes(labels, predictions, num_classes)) {
    if (counts.labels + counts.predictions == 0) continue;
    sum += counts.f1();
    classes += 1;
  }
  return classes == 0 ? 0 : sum / classes;
}

MicroScores micro_scores(std::span<const int32_t> labels, std::span<const int32_t> predictions, int32_t negative) {
  ClassCounts counts;
  for (size_t i = 0; i < labels.size(); ++i) {
    counts.labels += labels[i] != negative;
    counts.predictions += predictions[i] != negative;
    counts.both += labels[i] != negative && labels[i] == predictions[i];
  }
  return {.precision = counts.predictions == 0 ? 0 : counts.both / counts.predictions,
          .recall = counts.labels == 0 ? 0 : counts.both / counts.labels,
          .f1 = counts.f1()};
}

double matthews_correlation(std::span<const int32_t> labels, std::span<const int32_t> predictions,
                            int32_t num_classes) {
  const auto n = static_cast<double>(labels.size());
  double correct = 0, products = 0, label_squares = 0, prediction_squares = 0;
  for (const ClassCounts& counts : count_classes(labels, predictions, num_classes)) {
    correct += counts.both;
    products += counts.labels * counts.predictions;
    label_squares += counts.labels * counts.labels;
    prediction_squares += counts.predictions * counts.predictions;
  }
  const double of_labels = n * n - label_squares, of_predictions = n * n - prediction_squares;
  if (of_labels == 0 || of_predictions == 0) return 0;
  return (correct * n - products) / std::sqrt(of_labels * of_predictions);
}

double pearson(std::span<const double> x, std::span<const double> y) {
  const double mean_x = mean_of(x), mean_y = mean_of(y);
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double dx = x[i] - mean_x, dy = y[i] - mean_y;
    xy += dx * dy;
    xx += dx * dx;
    yy += dy * dy;
  }
  if (xx == 0 || yy == 0) return 0;
  return std::clamp(xy / std::sqrt(xx * yy), -1.0, 1.0);
}

double spearman(std::span<const double> x, std::span<const double> y) { return pearson(ranks(x), ranks(y)); }

double mean_squared_error(std::span<const double> labels, std::span<const double> predictions) {
  double sum = 0;
  for (size_t i = 0; i < labels.size(); ++i) sum += std::pow(labels[i] - predictions[i], 2);
  return sum / static_cast<double>(labels.size());
}

double mean_absolute_error(std::span<const double> labels, std::span<const double> predictions) {
  double sum = 0;
  for (size_t i = 0; i < labels.size(); ++i) sum += std::abs(labels[i] - predictions[i]);
  return sum / static_cast<double>(labels.size());
}

double r2_score(std::span<const double> labels, std::span<const double> predictions) {
  const std::vector<double> means(labels.size(), mean_of(labels));
  const double error = mean_squared_error(labels, predictions), variance = mean_squared_error(labels, means);
  return error == 0 ? 1 : variance == 0 ? 0 : 1 - error / variance;
}

}  // namespace bert
