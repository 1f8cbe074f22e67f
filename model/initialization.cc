#include "model/initialization.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include <cmath>
#include <numbers>
#include <utility>

namespace bert {
namespace {

thread_local bool weights_are_drawn = true;

}  // namespace

NoInitWeights::NoInitWeights() : outermost_(std::exchange(weights_are_drawn, false)) {}
NoInitWeights::~NoInitWeights() { weights_are_drawn = outermost_; }
bool NoInitWeights::none() { return weights_are_drawn; }

Initializer::Initializer(const BertConfig& config, std::optional<at::Generator> generator)
    : std_(config.initializer_range),
      nvidia_(config.init == Initialization::kNvidia),
      generator_(std::move(generator)) {}

// Note [NVIDIA's initialisation]
// The reference draws from N(0, 0.02) for nn.Linear and nn.Embedding only. Its three dense layers with a fused
// activation are of the class LinearActivation, which this rule skips. So they keep PyTorch's default, uniform in
// +-1/sqrt(fan_in) for weight and bias.
void Initializer::fill(LinearImpl& module) {
  const torch::NoGradGuard no_grad;
  if (nvidia_ && module.fused_activation) {
    const double bound = 1.0 / std::sqrt(static_cast<double>(module.weight.size(1)));
    uniform(module.weight, bound);
    uniform(module.bias, bound);
  } else {
    normal(module.weight);
    module.bias.zero_();
  }
}

void Initializer::fill(EmbeddingImpl& module) {
  const torch::NoGradGuard no_grad;
  normal(module.weight);
}

void Initializer::normal(torch::Tensor& parameter) {
  torch::Tensor value = at::empty(parameter.sizes(), torch::kFloat);
  if (nvidia_) {
    value.normal_(0.0, std_, generator_);
  } else {
    // x = sqrt(2) erfinv(u) is normal for u uniform in (-1, 1). It is within two standard deviations if |u| <
    // erf(sqrt(2)).
    const double bound = std::erf(std::numbers::sqrt2);
    value.uniform_(-bound, bound, generator_).erfinv_().mul_(std_ * std::numbers::sqrt2).clamp_(-2 * std_, 2 * std_);
  }
  parameter.copy_(value);
}

void Initializer::uniform(torch::Tensor& parameter, double bound) {
  parameter.copy_(at::empty(parameter.sizes(), torch::kFloat).uniform_(-bound, bound, generator_));
}

void init_weights(torch::nn::Module& module, const BertConfig& config, uint64_t seed) {
  check(config);
  const torch::NoGradGuard no_grad;
  Initializer initializer(config, at::make_generator<at::CPUGeneratorImpl>(seed));
  for (const auto& item : module.modules()) {
    if (auto* linear = item->as<Linear>()) {
      initializer.fill(*linear);
    } else if (auto* embedding = item->as<Embedding>()) {
      initializer.fill(*embedding);
    } else if (auto* layer_norm = item->as<LayerNorm>()) {
      layer_norm->weight.fill_(1.0);
      layer_norm->bias.zero_();
    } else if (auto* head = item->as<BertLMPredictionHead>()) {
      head->bias.zero_();
    }
  }
}

}  // namespace bert
