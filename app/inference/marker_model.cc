#include "app/inference/marker_model.h"

#include "cuda_ext/ops.h"
#include "cuda_ext/scalar/philox.h"

namespace bert {

at::Tensor marker_states(const at::Tensor& states, const PackedBatch& batch) {
  return states.index_select(0, batch.masked_positions).view({batch.num_sequences(), -1});
}

BertForEntityMarkersImpl::BertForEntityMarkersImpl(const BertConfig& config, int64_t num_labels)
    : bert(register_module("bert", BertModel(config, /*add_pooling_layer=*/false))),
      classifier(register_module("classifier", Linear(config, 2 * config.hidden_size, num_labels))) {}

torch::Tensor BertForEntityMarkersImpl::forward(const PackedBatch& batch) {
  torch::Tensor states = marker_states(bert->forward(batch, dropout_seed).last_hidden_state, batch);
  if (const double p = bert->config.hidden_dropout_prob; is_training() && p > 0) {
    const torch::Tensor first = batch.cu_seqlens.narrow(0, 0, batch.num_sequences());
    states = ops::dropout(
        states, {.p = p, .seed = dropout_seed, .site = kHeadSite, .keys = batch.dropout_keys.index_select(0, first)});
  }
  return classifier->forward(states);
}

}  // namespace bert
