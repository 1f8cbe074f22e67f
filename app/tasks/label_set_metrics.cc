#include "app/tasks/label_set_metrics.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace bert {
namespace {

/// F1 of the `count` entries from `first` on, each `step` behind the one before.
double f1_of_entries(LabelMatrix right, LabelMatrix predicted, size_t first, size_t step, size_t count) {
  double both = 0, all = 0;
  for (size_t i = 0, at = first; i < count; ++i, at += step) {
    both += static_cast<double>(right[at] & predicted[at]);
    all += static_cast<double>(right[at] + predicted[at]);
  }
  return all == 0 ? 0 : 2 * both / all;
}

/// Numbers of the scores, the largest first.
std::vector<size_t> falling_order(ScoreMatrix scores) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  return order;
}

/// Calls visit(begin, end) for each run of equal scores in the order.
template <class Visit>
void visit_ties(ScoreMatrix scores, const std::vector<size_t>& order, const Visit& visit) {
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && scores[order[end]] == scores[order[begin]]) ++end;
    visit(begin, end);
  }
}

}  // namespace

double average_precision(LabelMatrix right, ScoreMatrix scores) {
  const double total = std::accumulate(right.begin(), right.end(), 0.0);
  const std::vector<size_t> order = falling_order(scores);
  double found = 0, sum = 0;
  visit_ties(scores, order, [&](size_t begin, size_t end) {
    double more = 0;
    for (size_t i = begin; i < end; ++i) more += right[order[i]];
    found += more;
    sum += more * found / static_cast<double>(end);
  });
  return total == 0 ? 0 : sum / total;
}

double micro_f1(LabelMatrix right, LabelMatrix predicted) {
  return f1_of_entries(right, predicted, 0, 1, right.size());
}

double macro_f1_of_sets(LabelMatrix right, LabelMatrix predicted, size_t labels) {
  double sum = 0;
  for (size_t label = 0; label < labels; ++label)
    sum += f1_of_entries(right, predicted, label, labels, right.size() / labels);
  return sum / static_cast<double>(labels);
}

double sample_f1(LabelMatrix right, LabelMatrix predicted, size_t labels) {
  const size_t examples = right.size() / labels;
  double sum = 0;
  for (size_t example = 0; example < examples; ++example)
    sum += f1_of_entries(right, predicted, example * labels, 1, labels);
  return examples == 0 ? 0 : sum / static_cast<double>(examples);
}

double macro_average_precision(LabelMatrix right, ScoreMatrix scores, size_t labels) {
  double sum = 0;
  for (size_t label = 0; label < labels; ++label) {
    std::vector<uint8_t> right_of_label;
    std::vector<double> scores_of_label;
    for (size_t at = label; at < right.size(); at += labels) {
      right_of_label.push_back(right[at]);
      scores_of_label.push_back(scores[at]);
    }
    sum += average_precision(right_of_label, scores_of_label);
  }
  return sum / static_cast<double>(labels);
}

double label_ranking_average_precision(LabelMatrix right, ScoreMatrix scores, size_t labels) {
  const size_t examples = right.size() / labels;
  double sum = 0;
  for (size_t example = 0; example < examples; ++example) {
    const LabelMatrix row = right.subspan(example * labels, labels);
    const double total = std::accumulate(row.begin(), row.end(), 0.0);
    const bool some = total > 0 && total < static_cast<double>(labels);  // else every ranking is right
    sum += some ? average_precision(row, scores.subspan(example * labels, labels)) : 1;
  }
  return examples == 0 ? 0 : sum / static_cast<double>(examples);
}

double best_f1_threshold(LabelMatrix right, ScoreMatrix scores, double otherwise) {
  const double total = std::accumulate(right.begin(), right.end(), 0.0);
  const std::vector<size_t> order = falling_order(scores);
  double found = 0, best = 0, threshold = otherwise;
  visit_ties(scores, order, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) found += right[order[i]];
    const double f1 = 2 * found / (total + static_cast<double>(end));
    if (f1 <= best) return;
    best = f1;
    const double upper = scores[order[begin]], lower = end < order.size() ? scores[order[end]] : 0;
    const double middle = lower + (upper - lower) / 2;
    threshold = middle < upper ? middle : lower;
  });
  return threshold;
}

}  // namespace bert
