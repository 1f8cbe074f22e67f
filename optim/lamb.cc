#include "optim/lamb.h"

#include <ATen/ATen.h>

namespace bert {

void Lamb::update(const ops::OptimizerTensors& tensors, const ops::StepScalars& scalars,
                  const OptimizerConfig& config) const {
  ops::multi_tensor_lamb(tensors, scalars,
                         {.beta1 = config.beta1,
                          .beta2 = config.beta2,
                          .beta3 = config.grad_averaging ? 1.0 - config.beta1 : 1.0,
                          .eps = config.eps,
                          .weight_decay = config.weight_decay,
                          .decoupled = config.decoupled_weight_decay,
                          .trust_ratio = config.use_nvlamb || config.weight_decay != 0.0});
}

torch::Tensor Lamb::clip_coefficient(const torch::Tensor& norm, double max_grad_norm) const {
  return (norm / max_grad_norm).clamp_min_(1.0).reciprocal_();
}

}  // namespace bert
