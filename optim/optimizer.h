// Lamb, AdamW, Adam and BertAdam as torch::optim optimizers, with parameter groups by name.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cuda_ext/state_dict.h"
#include "optim/config.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace bert {

/// One parameter and the name under which its state is saved.
struct NamedParameter {
  std::string name;
  torch::Tensor tensor;
};

/// The module's parameters under the names that they have in it, in its order; one that stands there several times (a
/// tied weight) once, under its first name. A parameter without requires_grad is one of them.
[[nodiscard]] std::vector<NamedParameter> named_parameters(const torch::nn::Module& module);

/// Parameters that share their options; weight_decay takes the place of the configuration's, the rate is multiplied by
/// lr_scale, in (0, 1]. places: where each stood before it was grouped, the order in which messages name parameters;
/// empty: that of the groups.
struct NamedParameterGroup {
  std::vector<NamedParameter> parameters;
  double weight_decay = 0.0;
  double lr_scale = 1.0;
  std::vector<size_t> places = {};
};

struct WeightEma {
  torch::Tensor parameter, ema;
};

/// What one step needs from outside; device scalars, so that nothing synchronises.
struct StepInputs {
  torch::Tensor lr;         // fp32 scalar; undefined = the rate of each group's options
  torch::Tensor inv_scale;  // fp32 scalar: gradients are multiplied by it; undefined = 1
  torch::Tensor found_inf;  // fp32 scalar, not 0 = skip the whole step; undefined = never
};

/// The interface the trainer uses; each is a torch::optim::Optimizer too.
///
/// Note [Skipped steps]
/// A step is skipped when StepInputs::found_inf is set or when the norm of the gradients is not finite: parameters,
/// moments and applied_steps() keep every bit. Nothing is raised, as that would need the host; found_inf() says it
/// afterwards.
///
/// Note [Parameters without a gradient]
/// A parameter whose .grad is undefined is left out of the step and of the norm, as in PyTorch (but bias correction
/// counts the optimizer's steps, as NVIDIA's FusedLAMB does). A gradient of zeros is not the same: moments decay and
/// weight decay applies. Where no parameter has one, the step does nothing: grad_norm() and found_inf() are 0.
///
/// Note [State of a bare list]
/// An optimizer of a list of tensors without names saves their state under their places in it, "0", "1", and so on. A
/// list in another order, of equal shapes, would take the state of others without a word: where state is saved, give
/// named_parameters() of the module, through group_parameters() or make_optimizer().
///
/// Note [Gradients of low-precision weights]
/// The .grad of an fp16 or bf16 parameter has its dtype, so micro-steps are added up in it, unless DataParallel (also
/// of one process: DataParallel(nullptr, parameters)) has put an fp32 buffer in its place. The step converts either to
/// fp32 and goes on from there.
class BertOptimizer : public torch::optim::Optimizer {
 public:
  using torch::optim::Optimizer::Optimizer;
  /// Applies one update: unscale, clip by the global norm, moments, decay, trust ratio. Sets grad_norm() (of unscaled
  /// gradients). Throws c10::Error, before anything changes, when a group's options are out of range by now (set_lr()
  /// does not look), or an input is no scalar of its dtype on the parameters' device.
  virtual void apply(const StepInputs& inputs) = 0;
  /// torch::optim's step: the learning rate of every group's options, no loss scale. Returns the closure's loss.
  torch::Tensor step(LossClosure closure = nullptr) override;
  [[nodiscard]] virtual torch::Tensor grad_norm() const = 0;  // fp32 scalar on the device, before clipping
  [[nodiscard]] virtual torch::Tensor found_inf()
      const = 0;  // fp32 scalar on the device: 1 when the last step was skipped, else 0
  [[nodiscard]] virtual torch::Tensor applied_steps()
      const = 0;  // int64 scalar on the device, counts applied steps only
  /// exp_avg and exp_avg_sq by parameter name ("exp_avg.<name>", "exp_avg_sq.<name>"), "step", "master.<name>" (fp32)
  /// of every fp16 or bf16 parameter, and "ema.<name>" with ema_decay. The tensors are the live ones: copy them before
  /// the next step if they must not change.
  [[nodiscard]] virtual StateDict state_dict() const = 0;
  /// Copies `state` in, in any order. Throws c10::Error with the list of entries that are missing, extra, reshaped or
  /// of another dtype, and for a negative step, before anything changes.
  virtual void load_state_dict(const StateDict& state) = 0;
  /// Phase 1 -> 2: moments stay, the step starts again at 0.
  virtual void reset_step() = 0;
  /// Every parameter with its moving average (fp32; fp64 for fp64), live; none without ema_decay. Over the t steps so
  /// far the average is that of all t weights while 1 / t >= 1 - ema_decay, and ema_decay a + (1 - ema_decay) p from
  /// there on; a skipped step leaves it.
  [[nodiscard]] virtual std::vector<WeightEma> emas() const = 0;
  /// What state_dict() takes of this process's memory.
  [[nodiscard]] virtual int64_t state_bytes() const;
  /// state_dict() as one dictionary under "state". load() throws c10::Error for any other archive.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;
  /// The first parameter, in the order in which they were given to make_optimizer() or group_parameters(), with an inf
  /// or NaN in its gradient. Synchronises: for the message that ends a run.
  [[nodiscard]] virtual std::optional<std::string> first_non_finite_gradient() const = 0;
};

/// Puts the optimizer's averages into the parameters as long as it lives, for evaluation; the parameters then get
/// their bits back. Nothing without ema_decay.
class EmaWeights {
 public:
  explicit EmaWeights(const BertOptimizer& optimizer);
  ~EmaWeights();
  EmaWeights(const EmaWeights&) = delete;
  EmaWeights& operator=(const EmaWeights&) = delete;

 private:
  std::vector<std::pair<torch::Tensor, torch::Tensor>> saved_;  // each parameter with its values before
};

/// Whether the name contains none of `no_decay`, by default the recipe's: biases and LayerNorm do not decay.
[[nodiscard]] bool decays(const std::string& parameter_name,
                          const std::vector<std::string>& no_decay = OptimizerConfig().no_decay);

/// One group for each combination of decaying or not (decays()) and of rate, decaying ones first, each in the order of
/// `parameters`. With L layers ("...layer.<i>..." in a name), lr_scale is layer_lr_decay to the power of 0 above them
/// (pooler, heads), L - i for layer i, L + 1 for embeddings. Throws c10::Error for a layer_lr_decay without layers.
[[nodiscard]] std::vector<NamedParameterGroup> group_parameters(const std::vector<NamedParameter>& parameters,
                                                                const OptimizerConfig& config);

/// A report of what decays. One line per group (weight decay, rate where it is scaled, tensors, elements), then one per
/// tensor, "  name [shape]", where tensors that differ only in their layer share a line: "  layer.*.name [shape] x 12".
[[nodiscard]] std::string describe(const std::vector<NamedParameterGroup>& groups);

/// The optimizer that config.type names, over group_parameters(parameters, config). Throws c10::Error when a value is
/// out of its range, when a name or a tensor stands there twice (tied weights are registered once), or when a tensor is
/// not a contiguous leaf on the one device.
std::unique_ptr<BertOptimizer> make_optimizer(const OptimizerConfig& config,
                                              const std::vector<NamedParameter>& parameters);
/// The same over groups that are there already.
std::unique_ptr<BertOptimizer> make_grouped_optimizer(const OptimizerConfig& config,
                                                      const std::vector<NamedParameterGroup>& groups);

}  // namespace bert
