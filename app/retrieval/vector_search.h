// Exact search of the nearest vectors, in bounded memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "app/config/sentence_encoder.h"
#include "app/retrieval/neighbour.h"

namespace bert {

/// The similarity of each row of `a` with the row of `b` at its place: [N, D] and [N, D] to [N]. Distances are
/// negative.
at::Tensor pairwise_similarity(Similarity kind, const at::Tensor& a, const at::Tensor& b);

/// The similarities of all rows of `a` [M, D] with all of `b` [N, D]: [M, N]. Distances are negative.
at::Tensor similarity_matrix(Similarity kind, const at::Tensor& a, const at::Tensor& b);

/// Keeps the `most` nearest vectors of each query. Vectors come in pieces of any size, and are not kept. Of vectors
/// with one score the earlier ones are nearer. A score that is no number is never kept. Memory beside the queries: 16
/// bytes for each kept neighbour, and 64 MB of scores.
class VectorSearch {
 public:
  /// `queries`: [Q, D], fp32 on the CPU or on a GPU, which then computes the products.
  VectorSearch(Similarity kind, at::Tensor queries, int64_t most);

  /// Searches the next vectors, [N, D] fp32 on any device.
  void add(const at::Tensor& vectors);

  /// For each query its nearest vectors, best first.
  [[nodiscard]] std::vector<std::vector<Neighbour>> nearest() const;

 private:
  void take(const at::Tensor& scores, int64_t first_query, int64_t first_place);

  const Similarity kind_;
  const at::Tensor queries_;
  const size_t most_;
  int64_t searched_ = 0;
  std::vector<std::vector<Neighbour>> heaps_;  // by query, the worst neighbour in front
};

}  // namespace bert
