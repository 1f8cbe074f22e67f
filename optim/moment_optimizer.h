// The common part of Lamb, AdamW, Adam, BertAdam and StableAdamW: state by parameter name, fp32 masters, clipping, the decision to
// skip, saving.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cuda_ext/multi_tensor.h"
#include "optim/optimizer.h"

namespace bert {

/// The options of one parameter group. The rate of a step, or otherwise that of the options, is multiplied by lr_scale.
struct GroupOptions : public torch::optim::OptimizerCloneableOptions<GroupOptions> {
  explicit GroupOptions(OptimizerConfig group_config, double scale = 1.0)
      : config(std::move(group_config)), lr_scale(scale) {}
  [[nodiscard]] double get_lr() const override { return config.lr; }
  void set_lr(double lr) override { config.lr = lr; }

  OptimizerConfig config;
  double lr_scale;
};

/// The arithmetic of a step for a configuration.
[[nodiscard]] UpdateOptions update_options(const OptimizerConfig& config, double lr_scale = 1.0);

/// An optimizer with a first and a second moment. A subclass passes its type.
class MomentOptimizer : public BertOptimizer {
 public:
  /// `type` replaces the configuration's. Throws c10::Error: see make_optimizer.
  MomentOptimizer(OptimizerType type, const std::vector<NamedParameterGroup>& groups, const OptimizerConfig& config);

  void apply(const StepInputs& inputs) override;

  [[nodiscard]] torch::Tensor grad_norm() const override { return grad_norm_; }
  [[nodiscard]] torch::Tensor found_inf() const override { return found_inf_; }
  [[nodiscard]] torch::Tensor applied_steps() const override { return step_; }
  [[nodiscard]] StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  void set_masters(const StateDict& values) override;
  void reset_step() override { step_.zero_(); }
  [[nodiscard]] std::vector<WeightEma> emas() const override;
  [[nodiscard]] std::optional<std::string> first_non_finite_gradient() const override;

 private:
  struct ParameterState {
    std::string name;
    size_t place = 0;      // NamedParameterGroup::places
    torch::Tensor param;   // the model's parameter
    torch::Tensor master;  // fp32 where param is fp16 or bf16, else undefined
    torch::Tensor exp_avg, exp_avg_sq;
    torch::Tensor ema;             // undefined without ema_decay
    torch::Tensor converted_grad;  // fp32 copy of a low-precision gradient, after the first one
  };

  [[nodiscard]] std::vector<ops::OptimizerTensors> collect();
  [[nodiscard]] std::vector<UpdateOptions> group_options() const;
  /// Updates the moving averages of weights that had no gradient in this step.
  void update_ema_of_unused();

  UpdateRule rule_;
  std::vector<std::vector<ParameterState>> states_;  // [group][parameter]
  ops::OptimizerStep update_;
  torch::Tensor step_, grad_norm_, found_inf_;
  double ema_decay_;
};

/// {{{"0", parameters[0]}, {"1", parameters[1]}, ...}}: one group, for parameters whose names do not matter.
[[nodiscard]] std::vector<NamedParameterGroup> numbered_group(const std::vector<torch::Tensor>& parameters,
                                                              double weight_decay);

}  // namespace bert
