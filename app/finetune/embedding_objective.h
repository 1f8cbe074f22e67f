// The loss of a step of sentence embeddings, which is one over all of its texts, on any number of ranks and
// micro-batches.
//
// Note [Cached gradients]
// In-batch negatives make a loss of all vectors of a step, while memory holds the activations of one micro-batch. So a
// step of several micro-batches runs the encoder twice (Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size
// under Memory Limited Setup"): first without gradients, for the vectors; the loss of all of them gives the gradient of
// each vector; then micro-batch by micro-batch with gradients, where the loss is the product of vectors and their
// gradients. Dropout is a function of the number of a sequence, so both passes draw the same masks. Vectors of all
// ranks are exchanged, and each rank computes the whole loss in the order of the rows. So neither loss nor gradients
// depend on ranks and micro-batches, but for rounding. sentence-transformers keeps this promise for its Cached losses
// on one rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "app/config/embedding_config.h"
#include "app/distributed/process_group.h"
#include "app/finetune/embedding_losses.h"
#include "app/inference/embedding_model.h"
#include "app/inference/pretrained.h"
#include "cuda_ext/packed_batch.h"

namespace bert {

/// A data set as the loss sees it.
struct EmbeddingSetShape {
  EmbeddingSetConfig config;
  int64_t columns = 2;  // texts of a row
};

struct EmbeddingObjectiveConfig {
  std::vector<EmbeddingSetShape> sets;          // PackedBatch::source is a place in it
  int64_t rows = 0;                             // of a step: global_batch_size
  int64_t stride = 2;                           // numbers of sequences from row to row: most_columns()
  std::vector<MatryoshkaDimension> dimensions;  // empty: all
};

class EmbeddingObjective {
 public:
  /// Gives the vectors [B, D] of a batch in fp32, in training mode.
  using Encode = std::function<at::Tensor(const PackedBatch&)>;

  /// `classifier` belongs to the model; nullptr: no set has the loss softmax. `teacher` gives the vectors that the loss
  /// mse compares with; empty: no set has it.
  EmbeddingObjective(EmbeddingObjectiveConfig config, ProcessGroupPtr group, LinearImpl* classifier, Encode teacher);

  /// Before the micro-batches of a step, which has `of_all_ranks`: the first pass of Note [Cached gradients]. Every
  /// rank must call it. Does not wait for the device.
  void prepare(std::span<const PackedBatch> micro_batches, int64_t of_all_ranks, const Encode& encode);

  /// The loss of the step, fp32. Its gradient through `vectors`, those of `batch`, is the micro-batch's share of the
  /// step's, times the number of micro-batches: OptimizerStep divides by it.
  [[nodiscard]] at::Tensor loss(const PackedBatch& batch, const at::Tensor& vectors) const;

 private:
  /// The loss of all vectors of a step, [rows * columns, D].
  [[nodiscard]] at::Tensor whole_loss(int64_t set, const at::Tensor& vectors, const at::Tensor& labels,
                                      const at::Tensor& teacher) const;
  /// The place of each sequence of the batch among those of the step, [B].
  [[nodiscard]] at::Tensor places_of(const PackedBatch& batch) const;

  EmbeddingObjectiveConfig config_;
  ProcessGroupPtr group_;
  LinearImpl* classifier_;
  Encode teacher_;
  int64_t micro_batches_ = 1;                   // of all ranks
  at::Tensor loss_, vector_gradients_;          // of the step, if it has several micro-batches: scalar, [rows * C, D]
  at::Tensor weight_gradient_, bias_gradient_;  // of the classifier
};

/// The vectors of a sentence encoder, without dropout and under the autocast of `precision`. Throws DataError if a
/// weight is missing.
EmbeddingObjective::Encode vectors_of(const Pretrained& teacher, c10::Device device, Precision precision);

}  // namespace bert
