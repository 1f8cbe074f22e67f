// The quality of scores that tell pairs of one class from the others, as sentence-transformers'
// BinaryClassificationEvaluator computes it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "app/tasks/task_scoring.h"

namespace bert {

/// average_precision() of app/tasks/label_set_metrics.h of scores in fp32.
double average_precision(std::span<const float> scores, std::span<const int32_t> labels);

/// The best accuracy and the best F1 over all thresholds, each with its threshold. A threshold is the middle between
/// two neighbours in the order of scores, so never above the first or below the last one. precision, recall and mcc
/// (Matthews' correlation) are those at f1_threshold.
struct ThresholdMetrics {
  double accuracy = 0;
  float accuracy_threshold = -1;
  double f1 = 0;
  float f1_threshold = 0;
  double precision = 0, recall = 0, ap = 0, mcc = 0;
};

/// `labels`: 0 or 1. `similar_is_greater`: false for distances. Pairs of one score keep their order. Computes in fp32
/// what the evaluator computes so: the thresholds.
ThresholdMetrics best_thresholds(std::span<const float> scores, std::span<const int32_t> labels,
                                 bool similar_is_greater);

/// The metrics under the evaluator's names: accuracy, accuracy_threshold, f1, f1_threshold, precision, recall, ap, mcc,
/// each after `prefix`, such as "cosine_".
std::vector<TaskMetric> named(const ThresholdMetrics& metrics, const std::string& prefix);

}  // namespace bert
