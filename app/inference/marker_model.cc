#include "app/inference/marker_model.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>

#include <string>

#include "cuda_ext/ops.h"
#include "cuda_ext/scalar/philox.h"
#include "data/io/error.h"
#include "data/tasks/entity_markers.h"

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

std::array<int64_t, 2> start_marker_ids(const Vocabulary& vocabulary, const std::string& model) {
  std::array<int64_t, 2> ids = {vocabulary.find(kEntityMarkers[0]), vocabulary.find(kEntityMarkers[2])};
  if (ids[0] < 0 || ids[1] < 0)
    throw DataError(model + ": its vocabulary lacks [E1] or [E2], whose states the classifier reads");
  return ids;
}

MarkerModel::MarkerModel(const BertForEntityMarkers& model, const std::array<int64_t, 2>& marker_ids)
    : EncoderWithOutputs(model->bert),
      marker_ids_(marker_ids),
      classifier_(register_module("classifier", model->classifier)) {}

torch::Tensor MarkerModel::states_of_markers(const torch::Tensor& hidden_states, const torch::Tensor& input_ids) const {
  const int64_t size = bert->config.hidden_size;
  std::vector<torch::Tensor> states;
  for (const int64_t id : marker_ids_) {
    const torch::Tensor place = input_ids.eq(id).to(torch::kLong).argmax(1, /*keepdim=*/true);  // [B, 1]
    states.push_back(hidden_states.gather(1, place.unsqueeze(2).expand({-1, -1, size})).squeeze(1));
  }
  return at::cat(states, 1);
}

std::vector<torch::Tensor> MarkerModel::forward(const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                                                const torch::Tensor& attention_mask) {
  const torch::Tensor states = bert->forward(input_ids, token_type_ids, attention_mask).last_hidden_state;
  return {classifier_->forward(states_of_markers(states, input_ids))};
}

std::vector<torch::Tensor> MarkerModel::outputs(const torch::Tensor& hidden_states, const torch::Tensor& input_ids,
                                                const torch::Tensor& /*attention_mask*/,
                                                const ParameterNamed& parameter) const {
  return {at::linear(states_of_markers(hidden_states, input_ids), parameter("classifier.weight"),
                     parameter("classifier.bias"))};
}

}  // namespace bert
