#include "app/finetune/embedding_losses.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "app/inference/sentence_pooling.h"
#include "app/system/errors.h"
#include "data/io/text_parts.h"

namespace bert {
namespace {

at::Tensor pair_cosine(const at::Tensor& a, const at::Tensor& b) { return (normalized(a) * normalized(b)).sum(-1); }

at::Tensor distance_of(VectorDistance distance, const at::Tensor& a, const at::Tensor& b) {
  if (distance == VectorDistance::kCosine) return 1 - pair_cosine(a, b);
  return (a - b).norm(distance == VectorDistance::kManhattan ? 1 : 2, -1);
}

/// Mean over the rows of log(sum of exp) - the score of the right column, which has the row's number.
at::Tensor ranking(const at::Tensor& scores) { return (scores.logsumexp(1) - scores.diagonal()).mean(); }

at::Tensor multiple_negatives_ranking(const EmbeddingSetConfig& config, const at::Tensor& vectors) {
  const at::Tensor unit = normalized(vectors);
  const at::Tensor anchors = unit.select(1, 0);
  // All positives, then all first negatives, and so on.
  const at::Tensor candidates = unit.narrow(1, 1, unit.size(1) - 1).transpose(0, 1).flatten(0, 1);
  const at::Tensor cosines = anchors.mm(candidates.t());
  at::Tensor scores = cosines * config.scale;
  if (config.false_negative_margin > 0) {
    const at::Tensor known = cosines.detach();
    const at::Tensor limit = known.diagonal().unsqueeze(1) + config.false_negative_margin;
    scores = scores.masked_fill(known > limit, -std::numeric_limits<double>::infinity());
  }
  if (!config.symmetric) return ranking(scores);
  return (ranking(scores) + ranking(scores.narrow(1, 0, scores.size(0)).t())) / 2;
}

at::Tensor cosent(const EmbeddingSetConfig& config, const at::Tensor& a, const at::Tensor& b,
                  const at::Tensor& labels) {
  const at::Tensor scores = pair_cosine(a, b) * config.scale;
  const at::Tensor differences = scores.unsqueeze(1) - scores.unsqueeze(0);
  const at::Tensor wrong_way = labels.unsqueeze(1) < labels.unsqueeze(0);
  const at::Tensor counted = differences.masked_fill(~wrong_way, -std::numeric_limits<double>::infinity());
  return torch::cat({torch::zeros({1}, scores.options()), counted.flatten()}).logsumexp(0);
}

at::Tensor online_contrastive(const at::Tensor& distances, const at::Tensor& labels, double margin) {
  // Rows are chosen by masks, so that nothing waits for the device. A mean over no rows is not a number, with which no
  // comparison is true, as in sentence-transformers.
  const at::Tensor negative = labels.eq(0), positive = labels.eq(1), known = distances.detach();
  const double infinity = std::numeric_limits<double>::infinity();
  const auto mean_of = [&](const at::Tensor& rows) { return known.masked_fill(~rows, 0).sum() / rows.sum(); };
  const at::Tensor farthest =
      torch::where(positive.sum().gt(1), known.masked_fill(~positive, -infinity).max(), mean_of(negative));
  const at::Tensor nearest =
      torch::where(negative.sum().gt(1), known.masked_fill(~negative, infinity).min(), mean_of(positive));
  const at::Tensor near_negatives = negative & known.lt(farthest), far_positives = positive & known.gt(nearest);
  return distances.square().masked_fill(~far_positives, 0).sum() +
         (margin - distances).relu().square().masked_fill(~near_negatives, 0).sum();
}

at::Tensor loss_of(const EmbeddingSetConfig& config, const at::Tensor& vectors, const EmbeddingTargets& targets,
                   const at::Tensor& teacher) {
  constexpr double kTripletMargin = 5, kContrastiveMargin = 0.5;  // of sentence-transformers
  if (config.loss == EmbeddingLoss::kMultipleNegativesRanking) return multiple_negatives_ranking(config, vectors);
  if (config.loss == EmbeddingLoss::kMse) return at::mse_loss(vectors, teacher);
  const at::Tensor a = vectors.select(1, 0), b = vectors.select(1, 1);
  const bool triplets = config.loss == EmbeddingLoss::kTriplet;
  const double margin = config.margin > 0 ? config.margin : triplets ? kTripletMargin : kContrastiveMargin;
  const VectorDistance distance = config.distance != VectorDistance::kDefault ? config.distance
                                  : triplets                                  ? VectorDistance::kEuclidean
                                                                              : VectorDistance::kCosine;
  switch (config.loss) {
    case EmbeddingLoss::kCoSent:
      return cosent(config, a, b, targets.labels);
    case EmbeddingLoss::kCosineSimilarity:
      return at::mse_loss(pair_cosine(a, b), targets.labels);
    case EmbeddingLoss::kTriplet:
      return (distance_of(distance, a, b) - distance_of(distance, a, vectors.select(1, 2)) + margin).relu().mean();
    case EmbeddingLoss::kContrastive: {
      const at::Tensor d = distance_of(distance, a, b);
      return (targets.labels * d.square() + (1 - targets.labels) * (margin - d).relu().square()).mean() / 2;
    }
    case EmbeddingLoss::kOnlineContrastive:
      return online_contrastive(distance_of(distance, a, b), targets.labels, margin);
    case EmbeddingLoss::kSoftmax: {
      const at::Tensor features = torch::cat({a, b, (a - b).abs()}, -1);
      const at::Tensor logits = at::linear(features, targets.classifier_weight, targets.classifier_bias);
      return at::cross_entropy_loss(logits, targets.labels.to(torch::kLong));
    }
    default:
      return at::mse_loss((a * b).sum(-1) - (a * vectors.select(1, 2)).sum(-1), targets.labels);
  }
}

}  // namespace

std::vector<MatryoshkaDimension> matryoshka_of(const std::vector<std::string>& entries, int64_t size) {
  std::vector<MatryoshkaDimension> all;
  for (const std::string& entry : entries) {
    const size_t colon = entry.find(':');
    const auto dimensions = number_of<int64_t>(entry.substr(0, colon));
    const auto weight = colon == std::string::npos ? 1.0 : number_of<double>(entry.substr(colon + 1));
    if (!dimensions || !weight || *dimensions < 1 || !std::isfinite(*weight) || *weight <= 0) {
      throw ConfigError(fmt::format(
          "embedding.matryoshka_dimensions: \"{}\"; want a number, or one with its weight, such as 256:0.5", entry));
    }
    if (*dimensions > size) {
      throw ConfigError(
          fmt::format("embedding.matryoshka_dimensions: \"{}\", and the vectors have {} dimensions", entry, size));
    }
    all.push_back({*dimensions, *weight});
  }
  std::ranges::stable_sort(all, [](const auto& a, const auto& b) { return a.dimensions > b.dimensions; });
  return all;
}

bool needs_label(EmbeddingLoss loss) {
  return loss != EmbeddingLoss::kMultipleNegativesRanking && loss != EmbeddingLoss::kTriplet &&
         loss != EmbeddingLoss::kMse;
}

std::pair<int64_t, int64_t> texts_of(EmbeddingLoss loss) {
  constexpr int64_t kMost = 64;
  if (loss == EmbeddingLoss::kMultipleNegativesRanking) return {2, kMost};
  if (loss == EmbeddingLoss::kMse) return {1, kMost};
  if (loss == EmbeddingLoss::kTriplet || loss == EmbeddingLoss::kMarginMse) return {3, 3};
  return {2, 2};
}

at::Tensor embedding_loss(const EmbeddingSetConfig& config, const at::Tensor& vectors, const EmbeddingTargets& targets,
                          std::span<const MatryoshkaDimension> dimensions) {
  if (dimensions.empty()) return loss_of(config, vectors, targets, targets.teacher);
  at::Tensor sum;
  for (const MatryoshkaDimension& each : dimensions) {
    const auto first = [&](const at::Tensor& all) { return all.narrow(-1, 0, each.dimensions); };
    const at::Tensor teacher = targets.teacher.defined() ? first(targets.teacher) : targets.teacher;
    const at::Tensor loss = loss_of(config, normalized(first(vectors)), targets, teacher) * each.weight;
    sum = sum.defined() ? sum + loss : loss;
  }
  return sum;
}

}  // namespace bert
