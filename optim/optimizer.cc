#include "optim/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <torch/serialize/archive.h>

#include "optim/adam.h"
#include "optim/lamb.h"

namespace bert {

torch::Tensor BertOptimizer::step(LossClosure closure) {
  torch::Tensor loss;
  if (closure) {
    const at::AutoGradMode with_grad(true);
    loss = closure();
  }
  apply({});
  return loss;
}

int64_t BertOptimizer::state_bytes() const {
  int64_t bytes = 0;
  for (const auto& item : state_dict()) bytes += static_cast<int64_t>(item.value().nbytes());
  return bytes;
}

void BertOptimizer::save(torch::serialize::OutputArchive& archive) const {
  c10::Dict<std::string, at::Tensor> state;
  for (const auto& item : state_dict()) state.insert(item.key(), item.value());
  archive.write("state", c10::IValue(state));
}

void BertOptimizer::load(torch::serialize::InputArchive& archive) {
  c10::IValue value;
  TORCH_CHECK_VALUE(
      archive.try_read("state", value) && value.isGenericDict(),
      "optimizer: the archive has no dictionary \"state\"; it was not written by save() of a BertOptimizer");
  StateDict state;
  for (const auto& item : value.toGenericDict()) state.insert(item.key().toStringRef(), item.value().toTensor());
  load_state_dict(state);
}

EmaWeights::EmaWeights(const BertOptimizer& optimizer) {
  const at::NoGradGuard no_grad;
  for (auto& [parameter, ema] : optimizer.emas()) {
    saved_.emplace_back(parameter, parameter.detach().clone());
    parameter.copy_(ema);
  }
}

EmaWeights::~EmaWeights() {
  const at::NoGradGuard no_grad;
  for (auto& [parameter, before] : saved_) parameter.copy_(before);
}

std::unique_ptr<BertOptimizer> make_optimizer(const OptimizerConfig& config,
                                              const std::vector<NamedParameter>& parameters) {
  validate(config);  // before the groups, so that errors name the configuration
  return make_grouped_optimizer(config, group_parameters(parameters, config));
}

std::unique_ptr<BertOptimizer> make_grouped_optimizer(const OptimizerConfig& config,
                                                      const std::vector<NamedParameterGroup>& groups) {
  validate(config);
  if (config.type == OptimizerType::kLamb) return std::make_unique<Lamb>(groups, config);
  if (config.type == OptimizerType::kAdam) return std::make_unique<Adam>(groups, config);
  if (config.type == OptimizerType::kBertAdam) return std::make_unique<BertAdam>(groups, config);
  if (config.type == OptimizerType::kStableAdamW) return std::make_unique<StableAdamW>(groups, config);
  return std::make_unique<AdamW>(groups, config);
}

}  // namespace bert
