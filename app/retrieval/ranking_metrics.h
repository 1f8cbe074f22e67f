// Metrics of ranked documents, by the names and definitions of sentence-transformers' InformationRetrievalEvaluator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/tasks/task_scoring.h"

namespace bert {

/// The places of a ranking that each metric looks at. The values are the evaluator's own.
struct RankingCutoffs {
  std::vector<int64_t> accuracy = {1, 3, 5, 10}, precision_recall = {1, 3, 5, 10}, ndcg = {10}, mrr = {10}, map = {100};

  /// The longest ranking that a metric looks at.
  [[nodiscard]] int64_t largest() const;
};

/// Sums the metrics of queries. Relevance is yes or no. With h the relevant documents among the first k, and R those of
/// the judgments:
///   accuracy@k   1 if h > 0
///   precision@k  h / k
///   recall@k     h / R
///   ndcg@k       sum over the relevant places i < k of 1 / log2(i + 2), over the same sum of the best ranking
///   mrr@k        1 / (i + 1) of the first relevant place i < k
///   map@k        sum over the relevant places i < k of precision@(i + 1), over min(k, R)
class RankingMetrics {
 public:
  explicit RankingMetrics(RankingCutoffs cutoffs = {});

  /// Adds a query: `hits` says of each ranked document, best first, if it is relevant; `relevant` is R, 1 or more.
  void add(const std::vector<bool>& hits, int64_t relevant);

  [[nodiscard]] int64_t queries() const { return queries_; }

  /// The means over the queries; all are 0 without queries. Names begin with `prefix`, such as "cosine_".
  [[nodiscard]] std::vector<TaskMetric> means(const std::string& prefix) const;

 private:
  RankingCutoffs cutoffs_;
  std::vector<TaskMetric> sums_;  // in the order of means()
  int64_t queries_ = 0;
};

/// The order of documents of one score in mrr@10: as they came (RerankingEvaluator), or the last one first
/// (CrossEncoderRerankingEvaluator).
enum class TiedDocuments : uint8_t { kInOrder, kReversed };

/// Sums the metrics of sentence-transformers' evaluators of that name: map, mrr@10 and ndcg@10 of samples with relevant
/// and other documents. scikit-learn defines the first (average_precision_score) and the last (ndcg_score): documents
/// of one score share their places.
class RerankingMetrics {
 public:
  explicit RerankingMetrics(TiedDocuments tied = TiedDocuments::kInOrder) : tied_(tied) {}

  /// Adds a sample with the scores of its documents. The first `relevant` ones are relevant; if none is, all is 0.
  void add(const std::vector<float>& scores, size_t relevant);

  [[nodiscard]] int64_t samples() const { return samples_; }
  [[nodiscard]] std::vector<TaskMetric> means() const;

 private:
  TiedDocuments tied_;
  double map_ = 0, mrr_ = 0, ndcg_ = 0;
  int64_t samples_ = 0;
};

}  // namespace bert
