// Adam with decoupled weight decay, also with clipped updates, Adam with L2 decay, and NVIDIA's BertAdam.
#pragma once

#include <vector>

#include "optim/moment_optimizer.h"

namespace bert {

/// AdamW after global clipping. With N = l2 norm of all (unscaled) gradients, every step t does
///   g  = grad min(1, max_grad_norm / (N + 1e-6))            (torch's clip_grad_norm_; max_grad_norm 0: g = grad)
///   m  = beta1 m + (1 - beta1) g
///   v  = beta2 v + (1 - beta2) g^2
///   p -= lr (mhat / (sqrt(vhat) + eps) + weight_decay p)
/// mhat = m / (1 - beta1^t) and vhat = v / (1 - beta2^t); with bias_correction off they are m and v. Without
/// bias correction, this is the AdamWeightDecayOptimizer of Devlin et al. 2018 (google-research/bert), which clips by N
/// alone: a factor of at most 1 + 1e-6 / N apart. All arithmetic is fp32 (fp64 for fp64 parameters), on fp32 masters if
/// parameters are fp16 or bf16. Gradients that are not finite: Note [Skipped steps]. Source: Loshchilov and Hutter
/// 2019, arXiv:1711.05101.
class AdamW : public MomentOptimizer {
 public:
  AdamW(const std::vector<NamedParameterGroup>& groups, const OptimizerConfig& config)
      : MomentOptimizer(OptimizerType::kAdamW, groups, config) {}
  /// One group. The names of its state are "0", "1", ...: Note [State of a bare list] in optim/optimizer.h.
  explicit AdamW(const std::vector<torch::Tensor>& parameters, const OptimizerConfig& config = {.lr = 1e-4})
      : AdamW(numbered_group(parameters, config.weight_decay), config) {}
};

/// Adam with L2 decay: AdamW, except that weight_decay p is added to g, before the moments, and not to the update.
/// Source: Kingma and Ba 2015, arXiv:1412.6980; torch.optim.Adam.
class Adam : public MomentOptimizer {
 public:
  Adam(const std::vector<NamedParameterGroup>& groups, const OptimizerConfig& config)
      : MomentOptimizer(OptimizerType::kAdam, groups, config) {}
  /// One group. The names of its state are "0", "1", ...: Note [State of a bare list] in optim/optimizer.h.
  explicit Adam(const std::vector<torch::Tensor>& parameters, const OptimizerConfig& config = {.lr = 1e-4})
      : Adam(numbered_group(parameters, config.weight_decay), config) {}
};

/// AdamW without bias correction; max_grad_norm clips each tensor by its own norm. Source: BertAdam of NVIDIA
/// DeepLearningExamples, PyTorch/LanguageModeling/BERT/optimization.py. Google's optimizer clips by the global norm:
/// AdamW without bias correction.
class BertAdam : public MomentOptimizer {
 public:
  BertAdam(const std::vector<NamedParameterGroup>& groups, const OptimizerConfig& config)
      : MomentOptimizer(OptimizerType::kBertAdam, groups, config) {}
  /// One group. The names of its state are "0", "1", ...: Note [State of a bare list] in optim/optimizer.h.
  explicit BertAdam(const std::vector<torch::Tensor>& parameters, const OptimizerConfig& config = {.lr = 1e-4})
      : BertAdam(numbered_group(parameters, config.weight_decay), config) {}
};

/// AdamW whose rate for a tensor is lr / max(1, RMS), with RMS^2 = the mean of g^2 / max(vhat, eps^2) over its elements:
/// where gradients are larger than v has seen, as after a jump of the loss, the tensor moves less, its decay included.
/// Clipping of the gradients (max_grad_norm) is then of no use, but applies. Source: Wortsman et al. 2023,
/// arXiv:2304.13013, algorithm 2; vhat is their u, whose beta2 is corrected.
class StableAdamW : public MomentOptimizer {
 public:
  StableAdamW(const std::vector<NamedParameterGroup>& groups, const OptimizerConfig& config)
      : MomentOptimizer(OptimizerType::kStableAdamW, groups, config) {}
  /// One group. The names of its state are "0", "1", ...: Note [State of a bare list] in optim/optimizer.h.
  explicit StableAdamW(const std::vector<torch::Tensor>& parameters, const OptimizerConfig& config = {.lr = 1e-4})
      : StableAdamW(numbered_group(parameters, config.weight_decay), config) {}
};

}  // namespace bert
