#include "app/retrieval/pair_metrics.h"

#include <algorithm>
#include <numeric>

#include "app/tasks/label_set_metrics.h"
#include "app/tasks/text_metrics.h"

namespace bert {
namespace {

/// The places of scores from the most similar on; equal scores keep their order.
std::vector<size_t> most_similar_first(std::span<const float> scores, bool similar_is_greater) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return similar_is_greater ? scores[a] > scores[b] : scores[a] < scores[b];
  });
  return order;
}

}  // namespace

double average_precision(std::span<const float> scores, std::span<const int32_t> labels) {
  const std::vector<double> wide(scores.begin(), scores.end());
  const std::vector<uint8_t> right(labels.begin(), labels.end());
  return average_precision(right, wide);
}

ThresholdMetrics best_thresholds(std::span<const float> scores, std::span<const int32_t> labels,
                                 bool similar_is_greater) {
  const std::vector<size_t> order = most_similar_first(scores, similar_is_greater);
  const auto count = static_cast<double>(labels.size());
  const auto positives = static_cast<double>(std::count(labels.begin(), labels.end(), 1));
  ThresholdMetrics best;
  double found = 0, negatives_left = count - positives;
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    if (labels[order[i]] == 1) {
      found += 1;
    } else {
      negatives_left -= 1;
    }
    const float threshold = (scores[order[i]] + scores[order[i + 1]]) / 2;
    if (const double accuracy = (found + negatives_left) / count; accuracy > best.accuracy) {
      best.accuracy = accuracy;
      best.accuracy_threshold = threshold;
    }
    if (found == 0) continue;
    const double precision = found / static_cast<double>(i + 1), recall = found / positives;
    const double f1 = 2 * precision * recall / (precision + recall);
    if (f1 <= best.f1) continue;
    best.f1 = f1;
    best.f1_threshold = threshold;
    best.precision = precision;
    best.recall = recall;
  }
  std::vector<int32_t> predicted;
  std::vector<float> similarities;
  for (const float score : scores) {
    predicted.push_back(similar_is_greater ? score >= best.f1_threshold : score <= best.f1_threshold);
    similarities.push_back(similar_is_greater ? score : -score);
  }
  best.ap = average_precision(similarities, labels);
  best.mcc = matthews_correlation(labels, predicted, /*num_classes=*/2);
  return best;
}

std::vector<TaskMetric> named(const ThresholdMetrics& metrics, const std::string& prefix) {
  return {{prefix + "accuracy", metrics.accuracy},
          {prefix + "accuracy_threshold", metrics.accuracy_threshold},
          {prefix + "f1", metrics.f1},
          {prefix + "f1_threshold", metrics.f1_threshold},
          {prefix + "precision", metrics.precision},
          {prefix + "recall", metrics.recall},
          {prefix + "ap", metrics.ap},
          {prefix + "mcc", metrics.mcc}};
}

}  // namespace bert
