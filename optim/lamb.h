// LAMB with gradients normalised before the moments (NVLAMB).
#pragma once

#include <vector>

#include "optim/moment_optimizer.h"

namespace bert {

/// LAMB in the form of NVIDIA's BERT. With N = l2 norm of all (unscaled) gradients, every step t does
///   g  = grad / max(1, N / max_grad_norm)                   (max_grad_norm 0: g = grad)
///   m  = beta1 m + (1 - beta1) g                            (grad_averaging off: + g)
///   v  = beta2 v + (1 - beta2) g^2
///   u  = mhat / (sqrt(vhat) + eps) + weight_decay p
///   p -= lr ratio u
/// mhat = m / (1 - beta1^t) and vhat = v / (1 - beta2^t), or m and v with bias_correction off. ratio = |p| / |u|, norms
/// per tensor, and 1 where one of them is 0; with use_nvlamb off it is 1 for groups without weight decay, too.
/// min_trust_ratio and max_trust_ratio bound |p| / |u|. decoupled_weight_decay off: weight_decay p is added to g,
/// before the moments, instead of to u. eps_inside_sqrt: sqrt(vhat + eps).
///
/// All arithmetic is fp32 (fp64 for fp64 parameters), on masters where parameters are fp16 or bf16. The gradients are
/// multiplied once, by the clip coefficient over the loss scale. Not finite: Note [Skipped steps].
///
/// Note [LAMB's order of operations]
/// Where fp32 rounds otherwise than in NVIDIA's kernels, which optimizer_test.cc has written down beside:
///   theirs                             ours
///   (g (1/s)) / clip                   g (1 / (s clip)), the factor computed in fp64
///   beta m + (1 - beta) g              Note [Moments in fp32] in cuda_ext/multi_tensor.h; 1 - beta from fp64
///   m / (1 - beta^t)                   m (1 / (1 - beta^t)), the factor computed in fp64
///   norms in fp32                      norms in fp64
///   u kept in the gradients' dtype     u kept nowhere: computed again for the update
/// Over 100 steps, with a loss scale that is no power of two, what was added to a parameter differs by 1e-6 of its norm
/// at first and 4e-7 in the end; m by 4e-7, v by 1.3e-5, which is how far 1 - 0.999 is off in their fp32 (their bias
/// correction takes it out again). With u in fp16 it would be 1.5e-4 at first and 5e-5 in the end.
///
/// Source: You et al. 2020, arXiv:1904.00962; NVIDIA's FusedLAMB; the bounds: DeepSpeed's FusedLamb.
class Lamb : public MomentOptimizer {
 public:
  Lamb(const std::vector<NamedParameterGroup>& groups, const OptimizerConfig& config)
      : MomentOptimizer("lamb", groups, config) {}
  /// One group; the state's names are "0", "1", ...: Note [State of a bare list] in optim/optimizer.h.
  explicit Lamb(const std::vector<torch::Tensor>& parameters, const OptimizerConfig& config = {})
      : Lamb(numbered_group(parameters, config.weight_decay), config) {}
};

}  // namespace bert
