#include "cuda_ext/dispatch/derivative.h"

#include <torch/csrc/autograd/functions/basic_ops.h>

namespace bert::dispatch {

void DropoutState::save(AutogradContext* ctx) const {
  ctx->saved_data["p"] = p;
  ctx->saved_data["seed"] = seed;
  ctx->saved_data["site"] = site;
}

DropoutState DropoutState::load(AutogradContext* ctx) {
  return {ctx->saved_data["p"].toDouble(), ctx->saved_data["seed"].toInt(), ctx->saved_data["site"].toInt()};
}

variable_list without_derivative(variable_list gradients) {
  for (at::Tensor& gradient : gradients) {
    if (gradient.defined()) gradient = gradient.detach().requires_grad_();
  }
  torch::autograd::DelayedError error("bert::ops: the operators have first derivatives only, not those of gradients",
                                      static_cast<int64_t>(gradients.size()));
  return error.apply(std::move(gradients));
}

}  // namespace bert::dispatch
