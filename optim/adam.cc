#include "optim/adam.h"

#include <ATen/ATen.h>

namespace bert {

void AdamW::update(const ops::OptimizerTensors& tensors, const ops::StepScalars& scalars,
                   const OptimizerConfig& config) const {
  ops::multi_tensor_adamw(
      tensors, scalars,
      {.beta1 = config.beta1, .beta2 = config.beta2, .eps = config.eps, .weight_decay = config.weight_decay});
}

torch::Tensor AdamW::clip_coefficient(const torch::Tensor& norm, double max_grad_norm) const {
  constexpr double kTorchClipEps = 1e-6;  // clip_grad_norm_
  return at::full_like(norm, max_grad_norm).div_(norm + kTorchClipEps).clamp_max_(1.0);
}

}  // namespace bert
