// A sentence encoder that trains: BERT, and what sentence-transformers puts behind it.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <vector>

#include "app/config/sentence_encoder.h"
#include "app/inference/pretrained.h"
#include "cuda_ext/state_dict.h"
#include "model/bert.h"

namespace bert {

/// The pooled vectors [B, P] of the states [T, H] of a packed batch, in fp32. As SentenceHead::pool() of each sequence, but
/// for rounding, and differentiable. Of a sequence that begins with ids in `unread` (each int64 [P]) these tokens are not
/// read, unless there are no others; the longest of several beginnings counts.
at::Tensor pool_sequences(const std::vector<SentencePooling>& pooling, const at::Tensor& states,
                          const PackedBatch& batch, const std::vector<at::Tensor>& unread = {});

/// Vectors [B, D] in fp32. The names of its parameters are those of a Pretrained: bert.*, and sentence.dense.I.*.
struct BertForSentenceEmbeddingImpl : torch::nn::Module {
  /// `classes`: outputs of `classifier`, which SoftmaxLoss reads; 0: none. Dense layers begin with zeros.
  BertForSentenceEmbeddingImpl(const BertConfig& config, SentenceEncoder encoder, int64_t classes = 0);
  torch::Tensor forward(const PackedBatch& batch);

  int64_t dropout_seed = 0;
  const SentenceEncoder encoder;
  BertModel bert;
  Linear classifier{nullptr};
  std::vector<at::Tensor> unread_prompts;  // of pool_sequences(), on the device

 private:
  StateDict dense_;  // the parameters of the dense layers
};
TORCH_MODULE(BertForSentenceEmbedding);

/// The weights of a trained model under the names of BertForSentenceEmbedding, without its classifier. The rest of a
/// model with heads is left out.
StateDict sentence_weights_of(const Pretrained& pretrained);

}  // namespace bert
