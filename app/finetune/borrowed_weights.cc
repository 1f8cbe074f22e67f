#include "app/finetune/borrowed_weights.h"

#include <torch/types.h>

namespace bert {

BorrowedWeights::BorrowedWeights(OptimizerStep& step, const StateDict& weights) {
  for (const auto& item : state_dict(step.module())) {
    const at::Tensor tensor = item.value().detach();
    own_.emplace_back(tensor, tensor.clone());
  }
  if (step.rank() == 0) load_state_dict(step.module(), weights);
  step.broadcast_parameters();
}

BorrowedWeights::~BorrowedWeights() {
  const torch::NoGradGuard no_grad;
  for (const auto& [tensor, values] : own_) tensor.copy_(values);
}

}  // namespace bert
