// A classifier of the relation of two marked entities, from the states of their start markers.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>

#include "cuda_ext/packed_batch.h"
#include "model/bert.h"

namespace bert {

/// The states [B, 2 * H] of the tokens [E1] and [E2] of each sequence, one behind the other. `states` [T, H];
/// batch.masked_positions has the rows of both tokens, [2 * B].
at::Tensor marker_states(const at::Tensor& states, const PackedBatch& batch);

/// Logits [B, labels]. Source: Soares et al. 2019, "Matching the Blanks" (entity markers, entity start).
struct BertForEntityMarkersImpl : torch::nn::Module {
  BertForEntityMarkersImpl(const BertConfig& config, int64_t num_labels);
  torch::Tensor forward(const PackedBatch& batch);

  int64_t dropout_seed = 0;
  BertModel bert;
  Linear classifier;
};
TORCH_MODULE(BertForEntityMarkers);

}  // namespace bert
