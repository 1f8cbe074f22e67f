// The losses of sentence embeddings.
//
// Note [Losses of embeddings]
// The definitions are those of sentence-transformers 5.7 (sentence_transformer/losses), for rows of vectors a (anchor),
// p (positive) and n (negatives):
//   multiple_negatives_ranking  cross entropy of each a over scale * cos(a, every p and n of the batch), with its p
//                               symmetric: the mean of that and of each p over scale * cos(p, every a)
//   cosent                      log(1 + sum of exp(scale * (cos_i - cos_j)) over the rows with label_i < label_j)
//   cosine_similarity           mean squared difference of cos(a, p) and the label
//   triplet                     mean of max(0, distance(a, p) - distance(a, n) + margin)
//   contrastive                 mean of half of: label * d^2 + (1 - label) * max(0, margin - d)^2, d = distance(a, p)
//   online_contrastive          the sums of d^2 over the positives beyond the nearest negative, and of
//                               max(0, margin - d)^2 over the negatives within the farthest positive
//   softmax                     cross entropy of a linear layer on (a, p, |a - p|)
//   margin_mse                  mean squared difference of a.p - a.n and the label
//   mse                         mean squared difference from the teacher's vectors
// matryoshka_dimensions: the sum of the loss on the first dimensions of each number, with the vectors' length 1
// there, each with its weight.
// false_negative_margin is no setting of sentence-transformers: a negative with cos(a, n) > cos(a, p) + margin is taken
// for a positive and left out of the sum (Zhang et al. 2025, "Qwen3 Embedding", equation 1, with a margin of 0.1).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/config/embedding_config.h"

namespace bert {

/// A number of dimensions, and the weight of the loss on them.
struct MatryoshkaDimension {
  int64_t dimensions = 0;
  double weight = 1;
};

/// Reads the entries of EmbeddingConfig::matryoshka_dimensions, largest first. Throws ConfigError for an entry that is
/// not NUMBER or NUMBER:WEIGHT, or that exceeds `size`, the dimensions of the vectors.
std::vector<MatryoshkaDimension> matryoshka_of(const std::vector<std::string>& entries, int64_t size);

/// True if the loss reads a label in each row.
bool needs_label(EmbeddingLoss loss);

/// The numbers of texts in a row that the loss takes, from the first to the second.
std::pair<int64_t, int64_t> texts_of(EmbeddingLoss loss);

/// The tensors beside the vectors in a loss. Tensors that the loss does not read may be undefined.
struct EmbeddingTargets {
  at::Tensor labels = {};             // [N], floating
  at::Tensor teacher = {};            // [N, C, D]
  at::Tensor classifier_weight = {};  // [classes, 3 D]
  at::Tensor classifier_bias = {};    // [classes]
};

/// The loss of N rows of C vectors, [N, C, D], a scalar of their dtype. `dimensions` may be empty.
at::Tensor embedding_loss(const EmbeddingSetConfig& config, const at::Tensor& vectors, const EmbeddingTargets& targets,
                          std::span<const MatryoshkaDimension> dimensions);

}  // namespace bert
