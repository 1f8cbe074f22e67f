// Lamb and AdamW as torch::optim optimizers, with parameter groups by name.
#pragma once

#include <torch/optim/optimizer.h>
#include <torch/ordered_dict.h>

#include <memory>
#include <string>
#include <vector>

#include "optim/config.h"

namespace bert {

using StateDict = torch::OrderedDict<std::string, torch::Tensor>;

/// One parameter and the name under which its state is saved.
struct NamedParameter {
  std::string name;
  torch::Tensor tensor;
};

/// What one step needs from outside; device scalars, so that nothing synchronises.
struct StepInputs {
  torch::Tensor lr;         // fp32 scalar
  torch::Tensor inv_scale;  // fp32 scalar: gradients are multiplied by it; undefined = 1
  torch::Tensor found_inf;  // fp32 scalar, not 0 = skip the whole step; undefined = never
};

/// The interface the trainer uses; Lamb and AdamW are torch::optim::Optimizer too.
class BertOptimizer : public torch::optim::Optimizer {
 public:
  using torch::optim::Optimizer::Optimizer;
  /// Applies one update: unscale, clip by the global norm, moments, decay, trust ratio. Sets grad_norm() (of unscaled gradients).
  virtual void apply(const StepInputs& inputs) = 0;
  [[nodiscard]] virtual torch::Tensor grad_norm() const = 0;      // fp32 scalar on the device
  [[nodiscard]] virtual torch::Tensor applied_steps() const = 0;  // scalar on the device, counts applied steps only
  /// exp_avg and exp_avg_sq by parameter name ("exp_avg.<name>", "exp_avg_sq.<name>"), "step", and fp32 masters where there are any.
  [[nodiscard]] virtual StateDict state_dict() const = 0;
  /// Throws c10::Error with the list of missing, extra or reshaped entries.
  virtual void load_state_dict(const StateDict& state) = 0;
  /// Phase 1 -> 2: moments stay, the step starts again at 0.
  virtual void reset_step() = 0;
};

/// Biases and LayerNorm parameters do not decay (recipe: names that contain bias, gamma, beta or LayerNorm).
[[nodiscard]] bool decays(const std::string& parameter_name);

/// `parameters` in the order in which they are updated and saved; a tensor given twice is refused.
std::unique_ptr<BertOptimizer> make_optimizer(const OptimizerConfig& config, const std::vector<NamedParameter>& parameters);

}  // namespace bert
