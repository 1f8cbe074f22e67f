// A sentence encoder as one module, for exports.
#pragma once

#include <vector>

#include "app/inference/sentence_pooling.h"
#include "model/torchscript.h"

namespace bert {

/// The encoder with its pooling, dense layers and normalisation. The outputs are the vectors of texts [B, D] and the
/// hidden states of tokens [B, S, H], fp32; what is behind the encoder is computed in fp32. The pooling reads the
/// tokens of a prompt, which the inputs do not tell from others. The dense layers have the names of kSentencePrefix.
class SentenceModel : public EncoderWithOutputs {
 public:
  /// `weights` has the tensors of the dense layers.
  SentenceModel(const BertModel& model, const SentenceEncoder& encoder, const StateDict& weights);

  std::vector<torch::Tensor> forward(const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                                     const torch::Tensor& attention_mask) override;
  [[nodiscard]] std::vector<torch::Tensor> outputs(const torch::Tensor& hidden_states, const torch::Tensor& input_ids,
                                                   const torch::Tensor& attention_mask,
                                                   const ParameterNamed& parameter) const override;

 private:
  const SentenceHead head_;
};

}  // namespace bert
