#include "app/inference/sentence_pooling.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/silu.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace bert {
namespace {

torch::Tensor pool_one(SentencePooling mode, const torch::Tensor& states, int64_t skipped) {
  const int64_t tokens = states.size(0);
  switch (mode) {
    case SentencePooling::kCls:
      return states[0];
    case SentencePooling::kMax:
      return states.amax(0);
    case SentencePooling::kMean:
      return states.sum(0).div_(static_cast<double>(tokens));
    case SentencePooling::kMeanSqrtLen:
      return states.sum(0).div_(std::sqrt(static_cast<double>(tokens)));
    case SentencePooling::kWeightedMean: {
      // A token weighs as much as its place in the text, counted from 1.
      const torch::Tensor weights = torch::arange(skipped + 1, skipped + tokens + 1, states.options());
      return torch::mv(states.t(), weights).div_(weights.sum());
    }
    case SentencePooling::kLastToken:
      break;
  }
  return states[tokens - 1];
}

}  // namespace

SentenceHead::SentenceHead(SentenceEncoder encoder, const StateDict& weights, c10::Device device)
    : encoder_(std::move(encoder)) {
  for (size_t i = 0; i < encoder_.dense.size(); ++i) {
    const std::string prefix = sentence_dense_prefix(i);
    const auto tensor = [&](const char* name) { return weights[prefix + name].to(device, torch::kFloat); };
    dense_.push_back({tensor("weight"), encoder_.dense[i].bias ? tensor("bias") : torch::Tensor()});
  }
}

torch::Tensor SentenceHead::pool(const torch::Tensor& states, int64_t skipped) const {
  if (skipped >= states.size(0)) skipped = 0;
  const torch::Tensor read = states.narrow(0, skipped, states.size(0) - skipped);
  if (encoder_.pooling.size() == 1) return pool_one(encoder_.pooling.front(), read, skipped);
  std::vector<torch::Tensor> parts;
  for (const SentencePooling mode : encoder_.pooling) parts.push_back(pool_one(mode, read, skipped));
  return torch::cat(parts);
}

torch::Tensor SentenceHead::join(const torch::Tensor& windows, const std::vector<int64_t>& tokens) const {
  if (windows.size(0) == 1) return windows[0];
  const torch::Tensor weights = torch::tensor(tokens).to(windows.device(), torch::kFloat);
  std::vector<torch::Tensor> parts;
  const auto modes = static_cast<int64_t>(encoder_.pooling.size());
  for (const torch::Tensor& part : windows.chunk(modes, 1)) {
    const bool largest = encoder_.pooling[parts.size()] == SentencePooling::kMax;
    parts.push_back(largest ? part.amax(0) : torch::mv(part.t(), weights) / weights.sum());
  }
  return torch::cat(parts);
}

torch::Tensor SentenceHead::finish(torch::Tensor pooled) const {
  for (size_t i = 0; i < dense_.size(); ++i)
    pooled = dense_layer(encoder_.dense[i], pooled, dense_[i].weight, dense_[i].bias);
  return encoder_.normalize ? normalized(pooled) : pooled;
}

torch::Tensor dense_layer(const SentenceDense& layer, const torch::Tensor& x, const torch::Tensor& weight,
                          const torch::Tensor& bias) {
  const torch::Tensor y = torch::linear(x, weight, bias);
  switch (layer.activation) {
    case DenseActivation::kTanh:
      return y.tanh();
    case DenseActivation::kGelu:
      return at::gelu(y);
    case DenseActivation::kRelu:
      return y.relu();
    case DenseActivation::kSigmoid:
      return y.sigmoid();
    case DenseActivation::kSilu:
      return at::silu(y);
    case DenseActivation::kIdentity:
      break;
  }
  return y;
}

torch::Tensor normalized(const torch::Tensor& vectors) {
  constexpr double kSmallest = 1e-12;  // of torch.nn.functional.normalize
  return vectors / vectors.norm(2, -1, /*keepdim=*/true).clamp_min(kSmallest);
}

}  // namespace bert
