// A classifier of the relation of two marked entities, from the states of their start markers.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <array>
#include <cstdint>
#include <vector>

#include "cuda_ext/packed_batch.h"
#include "data/tokenizer/vocabulary.h"
#include "model/bert.h"
#include "model/torchscript.h"

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

/// The ids of [E1] and [E2]. Throws DataError, which names `model`, if the vocabulary lacks them.
std::array<int64_t, 2> start_marker_ids(const Vocabulary& vocabulary, const std::string& model);

/// BertForEntityMarkers for exports: finds the tokens [E1] and [E2] in the input ids. The output is the logits [B, labels].
class MarkerModel : public EncoderWithOutputs {
 public:
  MarkerModel(const BertForEntityMarkers& model, const std::array<int64_t, 2>& marker_ids);

  std::vector<torch::Tensor> forward(const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                                     const torch::Tensor& attention_mask) override;
  [[nodiscard]] std::vector<torch::Tensor> outputs(const torch::Tensor& hidden_states, const torch::Tensor& input_ids,
                                                   const torch::Tensor& attention_mask,
                                                   const ParameterNamed& parameter) const override;

 private:
  /// The states [B, 2 * H] of the first [E1] and the first [E2] of each text.
  [[nodiscard]] torch::Tensor states_of_markers(const torch::Tensor& hidden_states,
                                                const torch::Tensor& input_ids) const;

  std::array<int64_t, 2> marker_ids_;
  Linear classifier_;
};

}  // namespace bert
