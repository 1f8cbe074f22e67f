// A BertModel for answers alone: weights laid out once, no gradients, no dropout.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda_ext/packed_batch.h"
#include "cuda_ext/prepared_linear.h"
#include "model/bert.h"

namespace bert {

/// The hidden states of a BertModel in evaluation mode, by the operators that train it, with ops::PreparedLinear for its
/// products. It does not change after construction: any number of threads may call it at once.
class BertInference {
 public:
  /// Copies the parameters of `model`, which can be freed. Device and dtype are those of the model. Throws c10::Error for kInt8 with
  /// another dtype than fp32 or another device than the CPU.
  explicit BertInference(const BertModelImpl& model, ops::Products products = ops::Products::kOfDtype);

  /// As BertModel's packed forward; masked_positions, dropout_keys and labels of the batch are not read. If
  /// `hidden_states` is given, it receives [T, H] of the embeddings and of each layer, num_hidden_layers + 1 in all.
  /// Throws c10::Error for a malformed batch.
  [[nodiscard]] BertModelOutput forward(const PackedBatch& batch,
                                        std::vector<torch::Tensor>* hidden_states = nullptr) const;

  [[nodiscard]] const BertConfig& config() const { return config_; }
  /// [V, H]: the decoder of the masked-token head.
  [[nodiscard]] const torch::Tensor& word_embeddings() const { return tables_.word; }

 private:
  struct Norm {
    torch::Tensor bias, gamma, beta;  // of the product before it; of the normalisation
  };
  struct Layer {
    ops::PreparedLinear qkv, attention_output, intermediate, output;
    torch::Tensor intermediate_bias;
    Norm attention_norm, output_norm;
  };

  /// `scratch` holds the joined weight of query, key and value until it is copied.
  static Layer layer_of(const BertLayerImpl& layer, ops::Products products, torch::Tensor& scratch);
  [[nodiscard]] torch::Tensor forward(const Layer& layer, const torch::Tensor& hidden_states,
                                      const PackedBatch& batch) const;
  [[nodiscard]] torch::Tensor normalised(const torch::Tensor& x, const torch::Tensor& residual, const Norm& norm) const;

  BertConfig config_;
  ops::Gelu gelu_;
  ops::EmbeddingTables tables_;
  Norm embedding_norm_;  // without a bias of a product
  std::vector<Layer> layers_;
  std::vector<ops::PreparedLinear> pooler_;  // one, or none without a pooler
};

}  // namespace bert
