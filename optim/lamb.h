// LAMB with gradients normalised before the moments (NVLAMB).
#pragma once

#include <vector>

#include "optim/moment_optimizer.h"

namespace bert {

/// LAMB in the form of NVIDIA's BERT. With N = l2 norm of all (unscaled) gradients and ratio as below, every step t
/// does
///   g     = grad / max(1, N / max_grad_norm)                      (max_grad_norm 0: g = grad)
///   m     = beta1 m + (1 - beta1) g                               (grad_averaging off: + g)
///   v     = beta2 v + (1 - beta2) g^2
///   u     = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay p    (bias_correction off: no
///   divisors) p    -= lr ratio u,  ratio = |p| / |u|, norms per tensor; 1 where one of them is 0
/// With use_nvlamb off, ratio is 1 for groups without weight decay. decoupled_weight_decay off: weight_decay p is added
/// to g instead. eps_inside_sqrt: sqrt(v / (1 - beta2^t) + eps). min_trust_ratio and max_trust_ratio bound |p| / |u|.
/// The gradients are unscaled, then normalised, in this order, whatever the loss scale. Not finite: Note [Skipped
/// steps]. Source: You et al. 2020, arXiv:1904.00962; NVIDIA's FusedLAMB; the bounds: DeepSpeed's FusedLamb.
class Lamb : public MomentOptimizer {
 public:
  Lamb(const std::vector<NamedParameterGroup>& groups, const OptimizerConfig& config)
      : MomentOptimizer("lamb", groups, config) {}
  /// One group; the state's names are "0", "1", ...
  explicit Lamb(const std::vector<torch::Tensor>& parameters, const OptimizerConfig& config = {})
      : Lamb(numbered_group(parameters, config.weight_decay), config) {}
};

}  // namespace bert
