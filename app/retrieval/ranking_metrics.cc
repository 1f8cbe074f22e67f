#include "app/retrieval/ranking_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "app/retrieval/pair_metrics.h"

namespace bert {
namespace {

constexpr size_t kRerankedPlaces = 10;  // at_k of RerankingEvaluator

double discount_at(size_t place) { return 1 / std::log2(static_cast<double>(place) + 2); }

/// Relevant documents among the first k.
int64_t hits_among(const std::vector<bool>& hits, int64_t k) {
  return std::count(hits.begin(), hits.begin() + std::min<std::ptrdiff_t>(k, std::ssize(hits)), true);
}

double ndcg_at(const std::vector<bool>& hits, int64_t relevant, size_t k) {
  double gain = 0, best = 0;
  for (size_t i = 0; i < std::min(k, hits.size()); ++i) gain += hits[i] ? discount_at(i) : 0;
  for (size_t i = 0; i < std::min(k, static_cast<size_t>(relevant)); ++i) best += discount_at(i);
  return gain / best;
}

double reciprocal_rank_at(const std::vector<bool>& hits, size_t k) {
  for (size_t i = 0; i < std::min(k, hits.size()); ++i) {
    if (hits[i]) return 1 / static_cast<double>(i + 1);
  }
  return 0;
}

double average_precision_at(const std::vector<bool>& hits, int64_t relevant, size_t k) {
  double found = 0, sum = 0;
  for (size_t i = 0; i < std::min(k, hits.size()); ++i) {
    if (!hits[i]) continue;
    found += 1;
    sum += found / static_cast<double>(i + 1);
  }
  return sum / static_cast<double>(std::min(static_cast<int64_t>(k), relevant));
}

/// The places of `scores` from the highest score on.
std::vector<size_t> best_first(const std::vector<float>& scores, TiedDocuments tied) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (tied == TiedDocuments::kReversed) std::ranges::reverse(order);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  return order;
}

/// ndcg_score of scikit-learn with k = 10. Documents of one score each gain the mean of theirs.
double tie_averaged_ndcg(const std::vector<float>& scores, const std::vector<size_t>& order, size_t relevant) {
  double gain = 0, best = 0;
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    double discounts = 0, hits = 0;
    for (; end < order.size() && scores[order[end]] == scores[order[begin]]; ++end) {
      discounts += end < kRerankedPlaces ? discount_at(end) : 0;
      hits += order[end] < relevant ? 1 : 0;
    }
    gain += hits / static_cast<double>(end - begin) * discounts;
    begin = end;
  }
  for (size_t i = 0; i < std::min(kRerankedPlaces, relevant); ++i) best += discount_at(i);
  return gain / best;
}

}  // namespace

int64_t RankingCutoffs::largest() const {
  int64_t most = 0;
  for (const auto* list : {&accuracy, &precision_recall, &ndcg, &mrr, &map}) {
    for (const int64_t k : *list) most = std::max(most, k);
  }
  return most;
}

RankingMetrics::RankingMetrics(RankingCutoffs cutoffs) : cutoffs_(std::move(cutoffs)) {
  const auto name = [this](const char* metric, const std::vector<int64_t>& places) {
    for (const int64_t k : places) sums_.push_back({fmt::format("{}@{}", metric, k), 0});
  };
  name("accuracy", cutoffs_.accuracy);
  name("precision", cutoffs_.precision_recall);
  name("recall", cutoffs_.precision_recall);
  name("ndcg", cutoffs_.ndcg);
  name("mrr", cutoffs_.mrr);
  name("map", cutoffs_.map);
}

void RankingMetrics::add(const std::vector<bool>& hits, int64_t relevant) {
  auto next = sums_.begin();
  const auto count = [&](int64_t k) { return static_cast<double>(hits_among(hits, k)); };
  for (const int64_t k : cutoffs_.accuracy) (next++)->value += count(k) > 0 ? 1 : 0;
  for (const int64_t k : cutoffs_.precision_recall) (next++)->value += count(k) / static_cast<double>(k);
  for (const int64_t k : cutoffs_.precision_recall) (next++)->value += count(k) / static_cast<double>(relevant);
  for (const int64_t k : cutoffs_.ndcg) (next++)->value += ndcg_at(hits, relevant, static_cast<size_t>(k));
  for (const int64_t k : cutoffs_.mrr) (next++)->value += reciprocal_rank_at(hits, static_cast<size_t>(k));
  for (const int64_t k : cutoffs_.map) (next++)->value += average_precision_at(hits, relevant, static_cast<size_t>(k));
  ++queries_;
}

std::vector<TaskMetric> RankingMetrics::means(const std::string& prefix) const {
  std::vector<TaskMetric> metrics = sums_;
  for (TaskMetric& metric : metrics) {
    metric.name.insert(0, prefix);
    if (queries_ > 0) metric.value /= static_cast<double>(queries_);
  }
  return metrics;
}

void RerankingMetrics::add(const std::vector<float>& scores, size_t relevant) {
  ++samples_;
  if (relevant == 0) return;
  const std::vector<size_t> order = best_first(scores, tied_);
  std::vector<bool> hits(order.size());
  for (size_t i = 0; i < order.size(); ++i) hits[i] = order[i] < relevant;
  std::vector<int32_t> labels(scores.size(), 0);
  std::fill_n(labels.begin(), relevant, 1);
  map_ += average_precision(scores, labels);
  mrr_ += reciprocal_rank_at(hits, kRerankedPlaces);
  ndcg_ += tie_averaged_ndcg(scores, order, relevant);
}

std::vector<TaskMetric> RerankingMetrics::means() const {
  const double count = samples_ > 0 ? static_cast<double>(samples_) : 1;
  return {{"map", map_ / count}, {"mrr@10", mrr_ / count}, {"ndcg@10", ndcg_ / count}};
}

}  // namespace bert
