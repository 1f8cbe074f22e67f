#include "app/inference/sentence_model.h"

#include <torch/types.h>

#include <limits>
#include <memory>
#include <string>

namespace bert {
namespace {

/// The vectors [B, H] of texts from their tokens x [B, S, H]. `mask` [B, S]: 1 for a token and 0 for padding.
torch::Tensor pooled_tokens(SentencePooling mode, const torch::Tensor& x, const torch::Tensor& mask) {
  const torch::Tensor tokens = mask.sum(1, /*keepdim=*/true), places = mask.cumsum(1);  // [B, 1]; [B, S], from 1
  const auto sum = [&](const torch::Tensor& weights) { return (x * weights.unsqueeze(2)).sum(1); };
  switch (mode) {
    case SentencePooling::kCls:
      return x.select(1, 0);
    case SentencePooling::kMax:
      return x.masked_fill(mask.eq(0).unsqueeze(2), std::numeric_limits<float>::lowest()).amax(1);
    case SentencePooling::kMean:
      return sum(mask) / tokens;
    case SentencePooling::kMeanSqrtLen:
      return sum(mask) / tokens.sqrt();
    case SentencePooling::kWeightedMean:
      return sum(mask * places) / (mask * places).sum(1, /*keepdim=*/true);
    case SentencePooling::kLastToken:
      break;
  }
  return sum(mask * places.eq(tokens));
}

}  // namespace

SentenceModel::SentenceModel(const BertModel& model, const SentenceEncoder& encoder, const StateDict& weights)
    : EncoderWithOutputs(model), head_(encoder, weights, torch::kCPU) {
  for (const auto& item : weights) {
    std::shared_ptr<torch::nn::Module> place;  // its name is all but the last part of the tensor's
    size_t begin = 0;
    for (size_t end = 0; (end = item.key().find('.', begin)) != std::string::npos; begin = end + 1) {
      const std::string name = item.key().substr(begin, end - begin);
      torch::nn::Module& parent = place ? *place : *this;
      const auto children = parent.named_children();
      const auto* found = children.find(name);
      place = found != nullptr ? *found : parent.register_module(name, std::make_shared<torch::nn::Module>());
    }
    place->register_parameter(item.key().substr(begin), item.value().to(torch::kFloat), /*requires_grad=*/false);
  }
}

std::vector<torch::Tensor> SentenceModel::forward(const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                                                  const torch::Tensor& attention_mask) {
  const torch::Tensor states = bert->forward(input_ids, token_type_ids, attention_mask).last_hidden_state;
  std::vector<torch::Tensor> pooled;
  for (int64_t row = 0; row < states.size(0); ++row)
    pooled.push_back(head_.pool(states[row].slice(0, 0, attention_mask[row].sum().item<int64_t>()), /*skipped=*/0));
  return {head_.finish(torch::stack(pooled)), states};
}

std::vector<torch::Tensor> SentenceModel::outputs(const torch::Tensor& hidden_states,
                                                  const torch::Tensor& /*input_ids*/,
                                                  const torch::Tensor& attention_mask,
                                                  const ParameterNamed& parameter) const {
  const SentenceEncoder& encoder = head_.encoder();
  const torch::Tensor x = hidden_states.to(torch::kFloat), mask = attention_mask.ne(0).to(torch::kFloat);
  std::vector<torch::Tensor> parts;
  for (const SentencePooling mode : encoder.pooling) parts.push_back(pooled_tokens(mode, x, mask));
  torch::Tensor vectors = parts.size() == 1 ? parts.front() : torch::cat(parts, 1);
  for (size_t i = 0; i < encoder.dense.size(); ++i) {
    const auto tensor = [&](const char* name) { return parameter(sentence_dense_prefix(i) + name).to(torch::kFloat); };
    vectors = dense_layer(encoder.dense[i], vectors, tensor("weight"),
                          encoder.dense[i].bias ? tensor("bias") : torch::Tensor());
  }
  return {encoder.normalize ? normalized(vectors) : vectors, x};
}

}  // namespace bert
