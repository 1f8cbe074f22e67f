// Lamb, AdamW, Adam, BertAdam and StableAdamW as torch::optim optimizers, with parameter groups by name.
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

/// One parameter, and the name of its state in files.
struct NamedParameter {
  std::string name;
  torch::Tensor tensor;
};

/// The module's parameters under their names and in their order, also those without requires_grad. A parameter that
/// occurs several times (a tied weight) is listed once, under its first name.
[[nodiscard]] std::vector<NamedParameter> named_parameters(const torch::nn::Module& module);

/// Parameters that share their options. weight_decay replaces the configuration's; the rate is multiplied by lr_scale,
/// in (0, 1]. places: the index of each parameter before grouping, which is the order in which messages name
/// parameters; empty: the order of the groups.
struct NamedParameterGroup {
  std::vector<NamedParameter> parameters;
  double weight_decay = 0.0;
  double lr_scale = 1.0;
  std::vector<size_t> places = {};
};

struct WeightEma {
  torch::Tensor parameter, ema;
};

/// The inputs of one step. They are scalars on the device, so that nothing synchronises.
struct StepInputs {
  torch::Tensor lr;         // fp32 scalar; undefined: the rate in each group's options
  torch::Tensor inv_scale;  // fp32 scalar that gradients are multiplied by; undefined: 1
  torch::Tensor found_inf;  // fp32 scalar, not 0: skip the whole step; undefined: never
};

/// The interface of all optimizers here. Each is a torch::optim::Optimizer too.
///
/// Note [Skipped steps]
/// A step is skipped if StepInputs::found_inf is not 0 or if the norm of the gradients is not finite. Parameters,
/// moments and applied_steps() then keep every bit. Nothing is thrown, because that would need the host; found_inf()
/// tells afterwards.
///
/// Note [Parameters without a gradient]
/// A parameter whose .grad is undefined takes no part in the step and in the norm, as in PyTorch (but bias correction
/// counts the optimizer's steps, as NVIDIA's FusedLAMB does). With a gradient of zeros, moments decay and weight decay
/// applies. If no parameter has a gradient, the step does nothing: grad_norm() and found_inf() are 0.
///
/// Note [State of a bare list]
/// An optimizer of a list of tensors without names saves their state under their indices: "0", "1", and so on. A list
/// in another order, with equal shapes, would silently load the state of other tensors. So if the state is saved, pass
/// the named_parameters() of the module, through group_parameters() or make_optimizer().
///
/// Note [Gradients of low-precision weights]
/// The .grad of an fp16 or bf16 parameter has its dtype, so micro-steps are added up in that dtype. DataParallel (for
/// one process: DataParallel(nullptr, parameters)) replaces it by an fp32 buffer. The step converts both to fp32 first.
class BertOptimizer : public torch::optim::Optimizer {
 public:
  using torch::optim::Optimizer::Optimizer;
  /// Applies one update: unscale, clip by the global norm, moments, decay, trust ratio. Sets grad_norm() (of unscaled
  /// gradients). Throws c10::Error, before anything changes, if a group's options are out of range (set_lr() does not
  /// check), or if an input is not a scalar of its dtype on the device of the parameters.
  virtual void apply(const StepInputs& inputs) = 0;
  /// torch::optim's step: the learning rates of the groups' options, no loss scale. Returns the closure's loss.
  torch::Tensor step(LossClosure closure = nullptr) override;
  [[nodiscard]] virtual torch::Tensor grad_norm() const = 0;  // fp32 scalar on the device, before clipping
  [[nodiscard]] virtual torch::Tensor found_inf()
      const = 0;  // fp32 scalar on the device: 1 if the last step was skipped, else 0
  [[nodiscard]] virtual torch::Tensor applied_steps() const = 0;  // int64 scalar on the device: number of applied steps
  /// Entries by parameter name: "exp_avg.<name>", "exp_avg_sq.<name>", "master.<name>" (fp32) for every fp16 or bf16
  /// parameter, "ema.<name>" with ema_decay; and "step". The tensors are live: copy them if they must not change in the
  /// next step.
  [[nodiscard]] virtual StateDict state_dict() const = 0;
  /// Copies `state`, in any order. An entry of device meta is checked, and leaves the value as it is. Throws c10::Error,
  /// before anything changes, with the list of entries that are missing, extra, reshaped or of another dtype, and for a
  /// negative step.
  virtual void load_state_dict(const StateDict& state) = 0;
  /// The masters of fp16 and bf16 parameters, and their moving averages, become these fp32 values, by name. The
  /// parameters stay: they are the rounded values. Call it before the first step. Names without a master are ignored.
  virtual void set_masters(const StateDict& values) = 0;
  /// For the change from phase 1 to phase 2: moments stay, the step starts again at 0.
  virtual void reset_step() = 0;
  /// Every parameter with its moving average (fp32; fp64 for fp64 parameters), live. Empty without ema_decay. With t
  /// applied steps, the average is the mean of all t weights while 1 / t >= 1 - ema_decay, and then ema_decay a + (1 -
  /// ema_decay) p. A skipped step does not change it.
  [[nodiscard]] virtual std::vector<WeightEma> emas() const = 0;
  /// Bytes of state_dict() in this process's memory.
  [[nodiscard]] virtual int64_t state_bytes() const;
  /// Saves state_dict() as one dictionary under "state". load() throws c10::Error for any other archive.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;
  /// The first parameter with inf or NaN in its gradient, in the order passed to make_optimizer() or
  /// group_parameters(). Synchronises: it is for the message that ends a run.
  [[nodiscard]] virtual std::optional<std::string> first_non_finite_gradient() const = 0;
};

/// Puts the moving averages into the parameters as long as it lives, for evaluation. The destructor restores the bits
/// of the parameters. Does nothing without ema_decay.
class EmaWeights {
 public:
  explicit EmaWeights(const BertOptimizer& optimizer);
  ~EmaWeights();
  EmaWeights(const EmaWeights&) = delete;
  EmaWeights& operator=(const EmaWeights&) = delete;

 private:
  std::vector<std::pair<torch::Tensor, torch::Tensor>> saved_;  // each parameter with its values before
};

/// True if the name contains none of `no_decay`. By default biases and LayerNorm do not decay, as in NVIDIA's recipe.
[[nodiscard]] bool decays(const std::string& parameter_name,
                          const std::vector<std::string>& no_decay = OptimizerConfig().no_decay);

/// One group for each combination of decay (decays()) and rate, those with decay first, each in the order of
/// `parameters`. With L layers ("...layer.<i>..." in a name), lr_scale is layer_lr_decay to the power of 0 above them
/// (pooler, heads), L - i for layer i, and L + 1 for embeddings. Throws c10::Error for a layer_lr_decay without layers.
[[nodiscard]] std::vector<NamedParameterGroup> group_parameters(const std::vector<NamedParameter>& parameters,
                                                                const OptimizerConfig& config);

/// A report of the groups. One line a group (weight decay, rate if it is scaled, tensors, elements), then one line a
/// tensor, "  name [shape]". Tensors that differ only in their layer share a line: "  layer.*.name [shape] x 12".
[[nodiscard]] std::string describe(const std::vector<NamedParameterGroup>& groups);

/// Makes the optimizer that config.type names, over group_parameters(parameters, config). Throws c10::Error if a value
/// is out of its range, if a name or a tensor occurs twice (tied weights are registered once), or if a tensor is not a
/// contiguous leaf on the one device.
std::unique_ptr<BertOptimizer> make_optimizer(const OptimizerConfig& config,
                                              const std::vector<NamedParameter>& parameters);
/// Makes the same optimizer over existing groups.
std::unique_ptr<BertOptimizer> make_grouped_optimizer(const OptimizerConfig& config,
                                                      const std::vector<NamedParameterGroup>& groups);

}  // namespace bert
