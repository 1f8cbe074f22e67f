#include "app/retrieval/vector_search.h"

#include <ATen/Parallel.h>
#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "app/inference/sentence_pooling.h"

namespace bert {
namespace {

constexpr int64_t kBlockVectors = 16384, kBlockQueries = 1024;  // 64 MB of scores

bool is_nearer(const Neighbour& a, const Neighbour& b) {
  return a.score > b.score || (a.score == b.score && a.place < b.place);
}

/// Cosines are dot products of vectors with the length 1.
torch::Tensor prepared(Similarity kind, const torch::Tensor& vectors) {
  return kind == Similarity::kCosine ? normalized(vectors) : vectors;
}

/// similarity_matrix() of prepared vectors.
torch::Tensor scores_of(Similarity kind, const torch::Tensor& a, const torch::Tensor& b) {
  if (kind == Similarity::kEuclidean) return -torch::cdist(a, b, 2);
  if (kind == Similarity::kManhattan) return -torch::cdist(a, b, 1);
  return a.mm(b.t());
}

}  // namespace

torch::Tensor pairwise_similarity(Similarity kind, const torch::Tensor& a, const torch::Tensor& b) {
  switch (kind) {
    case Similarity::kCosine:
      return (normalized(a) * normalized(b)).sum(-1);
    case Similarity::kDot:
      return (a * b).sum(-1);
    case Similarity::kEuclidean:
      return -(a - b).square().sum(-1).sqrt();
    case Similarity::kManhattan:
      break;
  }
  return -(a - b).abs().sum(-1);
}

torch::Tensor similarity_matrix(Similarity kind, const torch::Tensor& a, const torch::Tensor& b) {
  return scores_of(kind, prepared(kind, a), prepared(kind, b));
}

VectorSearch::VectorSearch(Similarity kind, torch::Tensor queries, int64_t most)
    : kind_(kind),
      queries_(prepared(kind, std::move(queries))),
      most_(static_cast<size_t>(most)),
      heaps_(static_cast<size_t>(queries_.size(0))) {
  TORCH_CHECK(queries_.dim() == 2, "VectorSearch: queries must be [Q, D], got ", queries_.sizes(), ".");
  TORCH_CHECK(most > 0, "VectorSearch: most must be 1 or more, got ", most, ".");
}

void VectorSearch::add(const torch::Tensor& vectors) {
  TORCH_CHECK(vectors.dim() == 2 && vectors.size(1) == queries_.size(1), "VectorSearch: vectors must be [N, ",
              queries_.size(1), "], got ", vectors.sizes(), ".");
  const torch::NoGradGuard no_grad;
  for (const torch::Tensor& piece : vectors.split(kBlockVectors)) {
    const torch::Tensor block = prepared(kind_, piece.to(queries_.device()));
    for (int64_t first = 0; first < queries_.size(0); first += kBlockQueries) {
      const torch::Tensor some = queries_.slice(0, first, first + kBlockQueries);
      take(scores_of(kind_, some, block).to(torch::kCPU).contiguous(), first, searched_);
    }
    searched_ += piece.size(0);
  }
}

void VectorSearch::take(const torch::Tensor& scores, int64_t first_query, int64_t first_place) {
  const float* const all = scores.const_data_ptr<float>();
  const int64_t columns = scores.size(1);
  at::parallel_for(0, scores.size(0), /*grain_size=*/1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::vector<Neighbour>& heap = heaps_[static_cast<size_t>(first_query + row)];
      const auto worst = [&] {
        return heap.size() < most_ ? -std::numeric_limits<float>::infinity() : heap.front().score;
      };
      float least = worst();
      for (int64_t column = 0; column < columns; ++column) {
        const float score = all[row * columns + column];
        if (!(score > least)) continue;  // places grow, so an equal score is farther
        if (heap.size() == most_) {
          std::pop_heap(heap.begin(), heap.end(), is_nearer);
          heap.pop_back();
        }
        heap.push_back({first_place + column, score});
        std::push_heap(heap.begin(), heap.end(), is_nearer);
        least = worst();
      }
    }
  });
}

std::vector<std::vector<Neighbour>> VectorSearch::nearest() const {
  std::vector<std::vector<Neighbour>> sorted = heaps_;
  for (std::vector<Neighbour>& list : sorted) std::sort(list.begin(), list.end(), is_nearer);
  return sorted;
}

}  // namespace bert
