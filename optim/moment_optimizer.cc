#include "optim/moment_optimizer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace bert {
namespace {

bool is_low_precision(const torch::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
}

bool is_full_precision(const torch::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble;
}

void check_parameters(const std::vector<NamedParameterGroup>& groups) {
  std::unordered_set<std::string> names;
  std::unordered_map<const void*, std::string> tensors;
  const torch::Tensor* first = nullptr;
  for (const NamedParameterGroup& group : groups) {
    TORCH_CHECK_VALUE(group.places.empty() || group.places.size() == group.parameters.size(), "optimizer: a group of ",
                      group.parameters.size(), " parameters has ", group.places.size(),
                      " places, expected as many or none");
    for (const auto& [name, tensor] : group.parameters) {
      TORCH_CHECK_VALUE(tensor.defined(), "optimizer: parameter ", name, " is undefined");
      TORCH_CHECK_VALUE(names.insert(name).second, "optimizer: two parameters are named ", name);
      const void* const memory =
          tensor.is_meta() || tensor.numel() == 0 ? tensor.unsafeGetTensorImpl() : tensor.const_data_ptr();
      const auto [seen, is_new] = tensors.emplace(memory, name);
      TORCH_CHECK_VALUE(is_new, "optimizer: ", seen->second, " and ", name,
                        " are one tensor and would be updated twice. Give a tied weight once.");
      TORCH_CHECK_VALUE(tensor.is_leaf(), "optimizer: ", name,
                        " is computed from other tensors; only leaves can be optimized");
      TORCH_CHECK_VALUE(is_full_precision(tensor) || is_low_precision(tensor), "optimizer: ", name, " is ",
                        tensor.scalar_type(), ", expected Float, Double, Half or BFloat16");
      TORCH_CHECK_VALUE(tensor.layout() == at::kStrided && tensor.is_contiguous(), "optimizer: ", name,
                        " is not contiguous: sizes ", tensor.sizes(), ", strides ", tensor.strides(),
                        ". Make the parameter of tensor.contiguous().");
      if (first == nullptr) first = &tensor;
      TORCH_CHECK_VALUE(tensor.device() == first->device(), "optimizer: ", name, " is on ", tensor.device(),
                        ", the others are on ", first->device(), ". Move the model before the optimizer is made.");
    }
  }
  TORCH_CHECK_VALUE(first != nullptr, "optimizer: no parameters were given");
}

std::vector<torch::optim::OptimizerParamGroup> torch_groups(const std::vector<NamedParameterGroup>& groups,
                                                            const OptimizerConfig& config) {
  check_parameters(groups);
  std::vector<torch::optim::OptimizerParamGroup> result;
  for (const NamedParameterGroup& group : groups) {
    std::vector<torch::Tensor> tensors;
    for (const NamedParameter& parameter : group.parameters) tensors.push_back(parameter.tensor);
    OptimizerConfig group_config = config;
    group_config.weight_decay = group.weight_decay;
    validate(group_config);
    TORCH_CHECK_VALUE(group.lr_scale > 0.0 && group.lr_scale <= 1.0, "optimizer: a group's lr_scale is ",
                      group.lr_scale, ", expected above 0, at most 1");
    result.emplace_back(std::move(tensors), std::make_unique<GroupOptions>(group_config, group.lr_scale));
  }
  return result;
}

constexpr double kTorchClipEps = 1e-6;  // the constant in torch's clip_grad_norm_

UpdateRule rule_of(const OptimizerConfig& config) {
  if (config.type == OptimizerType::kStableAdamW) return UpdateRule::kStableAdamw;
  return config.type == OptimizerType::kLamb ? UpdateRule::kLamb : UpdateRule::kAdamw;
}

OptimizerConfig with_type(OptimizerConfig config, OptimizerType type) {
  config.type = type;
  return config;
}

}  // namespace

UpdateOptions update_options(const OptimizerConfig& config, double lr_scale) {
  const bool lamb = rule_of(config) == UpdateRule::kLamb, bert_adam = config.type == OptimizerType::kBertAdam;
  return {.lr = config.lr,
          .beta1 = config.beta1,
          .beta2 = config.beta2,
          .beta3 = 1.0 - config.beta1,
          .eps = config.eps,
          .weight_decay = config.weight_decay,
          .max_grad_norm = config.max_grad_norm,
          .clip_eps = lamb ? 0.0 : kTorchClipEps,  // LAMB clips as the reference does
          .lr_scale = lr_scale,
          .ema_decay = config.ema_decay,
          .bias_correction = config.bias_correction && !bert_adam,
          .decoupled = config.type != OptimizerType::kAdam,
          .trust_ratio = lamb && (config.use_nvlamb || config.weight_decay != 0.0),
          .clip_per_tensor = bert_adam};
}

MomentOptimizer::MomentOptimizer(OptimizerType type, const std::vector<NamedParameterGroup>& groups,
                                 const OptimizerConfig& config)
    : BertOptimizer(torch_groups(groups, with_type(config, type)),
                    std::make_unique<GroupOptions>(with_type(config, type))),
      rule_(rule_of(with_type(config, type))),
      update_(rule_),
      ema_decay_(config.ema_decay) {
  const at::NoGradGuard no_grad;
  size_t parameters = 0;
  for (const NamedParameterGroup& group : groups) {
    std::vector<ParameterState>& states = states_.emplace_back();
    for (const auto& [name, tensor] : group.parameters) {
      ParameterState& state = states.emplace_back();
      state.name = name;
      state.place = group.places.empty() ? parameters : group.places[states.size() - 1];
      ++parameters;
      state.param = tensor;
      if (is_low_precision(tensor)) state.master = tensor.detach().to(at::kFloat);
      const torch::Tensor& like = state.master.defined() ? state.master : tensor;
      state.exp_avg = at::zeros_like(like);
      state.exp_avg_sq = at::zeros_like(like);
      if (config.ema_decay > 0.0) state.ema = like.detach().clone();
    }
  }
  const auto group = std::ranges::find_if(states_, [](const auto& states) { return !states.empty(); });
  const auto options = group->front().exp_avg.options();
  step_ = at::zeros({}, options.dtype(at::kLong));
  grad_norm_ = at::zeros({}, options.dtype(at::kFloat));
  found_inf_ = at::zeros({}, options.dtype(at::kFloat));
}

void MomentOptimizer::apply(const StepInputs& inputs) {
  const std::vector<ops::OptimizerTensors> groups = collect();
  if (std::ranges::all_of(groups, [](const auto& group) { return group.params.empty(); })) {
    grad_norm_.zero_();
    found_inf_.zero_();
    return;
  }
  update_.run(groups, group_options(),
              {.lr = inputs.lr,
               .inv_scale = inputs.inv_scale,
               .found_inf = inputs.found_inf,
               .step = step_,
               .grad_norm = grad_norm_,
               .skipped = found_inf_});
  if (ema_decay_ > 0.0) update_ema_of_unused();
}

void MomentOptimizer::update_ema_of_unused() {
  const at::NoGradGuard no_grad;
  torch::Tensor share;
  for (const auto& states : states_) {
    for (const ParameterState& state : states) {
      if (state.param.grad().defined()) continue;
      if (!share.defined()) {  // 0 in a skipped step: step_ may be 0 then
        share = step_.to(at::kDouble).reciprocal_().clamp_min_(1.0 - ema_decay_).masked_fill_(found_inf_.ne(0), 0.0);
      }
      torch::Tensor(state.ema).lerp_(state.master.defined() ? state.master : state.param,
                                     share.to(state.ema.scalar_type()));
    }
  }
}

std::vector<WeightEma> MomentOptimizer::emas() const {
  std::vector<WeightEma> result;
  for (const auto& states : states_) {
    for (const ParameterState& state : states) {
      if (state.ema.defined()) result.push_back({state.param, state.ema});
    }
  }
  return result;
}

std::vector<UpdateOptions> MomentOptimizer::group_options() const {
  std::vector<UpdateOptions> options;
  for (const torch::optim::OptimizerParamGroup& group : param_groups_) {
    const auto& group_options = static_cast<const GroupOptions&>(group.options());
    validate(group_options.config);  // the rate may have changed since the last step
    options.push_back(update_options(group_options.config, group_options.lr_scale));
  }
  return options;
}

std::vector<ops::OptimizerTensors> MomentOptimizer::collect() {
  const at::NoGradGuard no_grad;
  std::vector<ops::OptimizerTensors> groups(states_.size());
  for (size_t g = 0; g < states_.size(); ++g) {
    TORCH_CHECK(param_groups_.size() == states_.size() && param_groups_[g].params().size() == states_[g].size(),
                "optimizer: parameters were added after construction; give all of them to the constructor");
    for (ParameterState& state : states_[g]) {
      const torch::Tensor& grad = state.param.grad();
      if (!grad.defined()) continue;  // Note [Parameters without a gradient]
      TORCH_CHECK_VALUE(!grad.is_sparse(), "optimizer: the gradient of ", state.name,
                        " is sparse; dense gradients are needed");
      const bool low_precision = state.master.defined();
      const torch::Tensor& param = low_precision ? state.master : state.param;
      TORCH_CHECK_VALUE(
          low_precision ? is_low_precision(state.param) : state.param.scalar_type() == state.exp_avg.scalar_type(),
          "optimizer: ", state.name, " is ", state.param.scalar_type(), " by now, and its state was made for ",
          low_precision ? "Half or BFloat16" : c10::toString(state.exp_avg.scalar_type()),
          ". Convert the model before the optimizer is made.");
      groups[g].params.push_back(param);
      groups[g].copies.push_back(low_precision ? state.param : torch::Tensor());
      if (grad.scalar_type() == param.scalar_type()) {
        groups[g].grads.push_back(grad);
      } else {
        if (!state.converted_grad.defined()) state.converted_grad = at::empty_like(param);
        groups[g].grads.push_back(state.converted_grad.copy_(grad));
      }
      groups[g].exp_avg.push_back(state.exp_avg);
      groups[g].exp_avg_sq.push_back(state.exp_avg_sq);
      groups[g].ema.push_back(state.ema);
    }
  }
  return groups;
}

StateDict MomentOptimizer::state_dict() const {
  StateDict result;
  result.insert("step", step_);
  for (const auto& states : states_) {
    for (const ParameterState& state : states) {
      result.insert("exp_avg." + state.name, state.exp_avg);
      result.insert("exp_avg_sq." + state.name, state.exp_avg_sq);
      if (state.master.defined()) result.insert("master." + state.name, state.master);
      if (state.ema.defined()) result.insert("ema." + state.name, state.ema);
    }
  }
  return result;
}

void MomentOptimizer::load_state_dict(const StateDict& state) {
  const at::NoGradGuard no_grad;
  const StateDict own = state_dict();
  std::string problems;
  for (const auto& item : own) {
    const torch::Tensor* given = state.find(item.key());
    if (given == nullptr) {
      problems += "\n  missing: " + item.key();
    } else if (given->sizes() != item.value().sizes()) {
      problems += c10::str("\n  reshaped: ", item.key(), ": expected ", item.value().sizes(), ", got ", given->sizes());
    } else if (given->scalar_type() != item.value().scalar_type()) {
      problems += c10::str("\n  of another dtype: ", item.key(), ": expected ", item.value().scalar_type(), ", got ",
                           given->scalar_type());
    } else if (item.key() == "step" && !given->is_meta() && given->item<int64_t>() < 0) {
      problems += c10::str("\n  negative: step: ", given->item<int64_t>());
    }
  }
  for (const auto& item : state) {
    if (!own.contains(item.key())) problems += "\n  extra: " + item.key();
  }
  TORCH_CHECK_VALUE(problems.empty(), "optimizer: the state does not fit the parameters; nothing was loaded.",
                    problems);
  for (const auto& item : own) {
    if (const torch::Tensor& given = state[item.key()]; !given.is_meta()) item.value().copy_(given);
  }
  for (const auto& states : states_) {
    for (const ParameterState& entry : states) {
      if (entry.master.defined()) torch::Tensor(entry.param).copy_(entry.master);
    }
  }
}

void MomentOptimizer::set_masters(const StateDict& values) {
  const at::NoGradGuard no_grad;
  for (const auto& states : states_) {
    for (const ParameterState& state : states) {
      const torch::Tensor* value = values.find(state.name);
      if (value == nullptr || !state.master.defined()) continue;
      torch::Tensor(state.master).copy_(*value);
      if (state.ema.defined()) torch::Tensor(state.ema).copy_(*value);
    }
  }
}

std::optional<std::string> MomentOptimizer::first_non_finite_gradient() const {
  std::multimap<size_t, const ParameterState*> in_order;
  for (const auto& states : states_) {
    for (const ParameterState& state : states) in_order.emplace(state.place, &state);
  }
  for (const auto& [place, state] : in_order) {
    const torch::Tensor& grad = state->param.grad();
    if (grad.defined() && !grad.isfinite().all().item<bool>()) return state->name;
  }
  return std::nullopt;
}

std::vector<NamedParameterGroup> numbered_group(const std::vector<torch::Tensor>& parameters, double weight_decay) {
  NamedParameterGroup group{.parameters = {}, .weight_decay = weight_decay};
  for (const torch::Tensor& parameter : parameters) {
    group.parameters.push_back({std::to_string(group.parameters.size()), parameter});
  }
  return {group};
}

}  // namespace bert
