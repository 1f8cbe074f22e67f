// LAMB with gradients normalised before the moments (NVLAMB).
#pragma once

#include <vector>

#include "optim/moment_optimizer.h"

namespace bert {

/// LAMB in the form of NVIDIA's BERT. With N = l2 norm of all (unscaled) gradients, every step t does
///   g  = grad / max(1, N / max_grad_norm)                   (max_grad_norm 0: g = grad)
///   m  = beta1 m + (1 - beta1) g
///   v  = beta2 v + (1 - beta2) g^2
///   u  = mhat / (sqrt(vhat) + eps) + weight_decay p
///   p -= lr ratio u
/// mhat = m / (1 - beta1^t) and vhat = v / (1 - beta2^t); with bias_correction off they are m and v. ratio = |p| / |u|,
/// with norms by tensor, and 1 if one of them is 0. With use_nvlamb off it is also 1 for groups without weight decay.
///
/// All arithmetic is fp32 (fp64 for fp64 parameters), on fp32 masters if parameters are fp16 or bf16. The gradients are
/// multiplied once, by the clip coefficient over the loss scale. Gradients that are not finite: Note [Skipped steps].
///
/// Note [LAMB's order of operations]
/// fp32 rounds differently from NVIDIA's kernels in these places. tests/optim/optimizer_test.cc has their formulas
/// beside ours:
///   theirs                             ours
///   (g (1/s)) / clip                   g (1 / (s clip)), the factor computed in fp64
///   beta m + (1 - beta) g              Note [Moments in fp32] in cuda_ext/multi_tensor.h; 1 - beta from fp64
///   m / (1 - beta^t)                   m (1 / (1 - beta^t)), the factor computed in fp64
///   norms in fp32                      norms in fp64
///   u kept in the gradients' dtype     u not kept: computed again for the update
/// Over 100 steps, with a loss scale that is not a power of two, the change of a parameter differs by 1e-6 of its norm
/// at first and 4e-7 in the end. m differs by 4e-7. v differs by 1.3e-5, the error of 1 - 0.999 in their fp32, which
/// their bias correction removes again. With u in fp16 the change would differ by 1.5e-4 at first and 5e-5 in the end.
///
/// Source: You et al. 2020, arXiv:1904.00962; NVIDIA's FusedLAMB.
class Lamb : public MomentOptimizer {
 public:
  Lamb(const std::vector<NamedParameterGroup>& groups, const OptimizerConfig& config)
      : MomentOptimizer(OptimizerType::kLamb, groups, config) {}
  /// One group. The names of its state are "0", "1", ...: Note [State of a bare list] in optim/optimizer.h.
  explicit Lamb(const std::vector<torch::Tensor>& parameters, const OptimizerConfig& config = {})
      : Lamb(numbered_group(parameters, config.weight_decay), config) {}
};

}  // namespace bert
