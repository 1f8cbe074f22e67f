// Adam with decoupled weight decay.
#pragma once

#include <vector>

#include "optim/moment_optimizer.h"

namespace bert {

/// AdamW after global clipping. With N = l2 norm of all (unscaled) gradients, every step t does
///   g  = grad min(1, max_grad_norm / (N + 1e-6))                  (torch's clip_grad_norm_; max_grad_norm 0: g = grad)
///   m  = beta1 m + (1 - beta1) g
///   v  = beta2 v + (1 - beta2) g^2
///   p -= lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + lr weight_decay p    (bias_correction off:
///   no divisors)
/// Without bias correction this is BertAdam but for its clipping per tensor. Not finite: Note [Skipped steps].
/// Source: Loshchilov and Hutter 2019, arXiv:1711.05101.
class AdamW : public MomentOptimizer {
 public:
  AdamW(const std::vector<NamedParameterGroup>& groups, const OptimizerConfig& config)
      : MomentOptimizer(UpdateRule::kAdamw, groups, config) {}
  /// One group; the state's names are "0", "1", ...
  explicit AdamW(const std::vector<torch::Tensor>& parameters,
                 const OptimizerConfig& config = {.type = "adamw", .lr = 1e-4})
      : AdamW(numbered_group(parameters, config.weight_decay), config) {}
};

}  // namespace bert
