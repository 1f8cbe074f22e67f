#include "optim/sharded_optimizer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>

#include "cuda_ext/multi_tensor.h"
#include "optim/moment_optimizer.h"
#include "optim/run_owners.h"

namespace bert {
namespace {

constexpr size_t kBroadcastBytes = 25 * 1024 * 1024;  // of one message

/// This rank's part of the groups of all parameters. The rates of the groups depend on all parameters (layer_lr_decay).
std::vector<NamedParameterGroup> owned_by(int rank, const std::vector<int>& owners,
                                          const std::vector<NamedParameterGroup>& groups) {
  std::vector<NamedParameterGroup> result;
  for (const NamedParameterGroup& group : groups) {
    NamedParameterGroup part{.parameters = {}, .weight_decay = group.weight_decay, .lr_scale = group.lr_scale};
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      if (owners[group.places[i]] != rank) continue;
      part.parameters.push_back(group.parameters[i]);
      part.places.push_back(group.places[i]);
    }
    if (!part.parameters.empty()) result.push_back(std::move(part));
  }
  return result;
}

/// Parameters of the same shapes and dtypes, without memory.
std::vector<NamedParameter> without_memory(const std::vector<NamedParameter>& parameters) {
  std::vector<NamedParameter> result;
  for (const auto& [name, tensor] : parameters) {
    result.push_back({name, at::empty(tensor.sizes(), tensor.options().device(at::kMeta)).requires_grad_()});
  }
  return result;
}

/// ShardedOptimizer itself clips by the norm of all ranks' gradients. Clipping of each tensor by its own norm stays
/// with the owner.
OptimizerConfig without_global_clipping(OptimizerConfig config) {
  if (!update_options(config).clip_per_tensor) config.max_grad_norm = 0.0;
  return config;
}

class ShardedOptimizer : public BertOptimizer {
 public:
  ShardedOptimizer(c10::intrusive_ptr<c10d::ProcessGroup> group, const OptimizerConfig& config,
                   const std::vector<NamedParameter>& parameters, const std::vector<int>& owners,
                   std::unique_ptr<BertOptimizer> own)
      : BertOptimizer(own->param_groups(), own->defaults().clone()),
        group_(std::move(group)),
        config_(config),
        parameters_(parameters),
        owners_(owners),
        own_(std::move(own)),
        layout_(make_optimizer(config, without_memory(parameters))) {
    std::vector<int64_t> figures;
    int64_t figure = 0;
    for (const NamedParameterGroup& parameter_group : group_parameters(parameters, config)) {
      for (const size_t place : parameter_group.places) {
        if (owners[place] == rank()) {
          own_parameters_.push_back(parameters[place]);
          figures.push_back(figure);
        }
        ++figure;
      }
    }
    tensors_of_.resize(static_cast<size_t>(group_->getSize()));
    for (size_t i = 0; i < parameters.size(); ++i) {
      tensors_of_[static_cast<size_t>(owners[i])].push_back(parameters[i].tensor.detach());
    }
    const auto options = at::TensorOptions().device(parameters.front().tensor.device());
    own_figures_ = at::tensor(figures, at::kLong).to(options.device());
    figures_ = at::zeros({figure + 1}, options.dtype(at::kDouble));
    grad_norm_ = at::zeros({}, options.dtype(at::kFloat));
  }

  void apply(const StepInputs& inputs) override {
    const at::NoGradGuard no_grad;
    for (size_t g = 0; g < param_groups_.size(); ++g) {  // the rate may have changed since the last step
      own_->param_groups()[g].options().set_lr(param_groups_[g].options().get_lr());
    }
    gather_norms(inputs.found_inf);
    const at::Tensor inv_scale =
        inputs.inv_scale.defined() ? inputs.inv_scale.to(at::kDouble) : at::ones({}, figures_.options());
    const int64_t tensors = figures_.numel() - 1;
    const at::Tensor norm = figures_.narrow(0, 0, tensors).norm() * inv_scale;
    grad_norm_.copy_(norm);
    const at::Tensor found_inf =
        grad_norm_.isfinite().logical_not_().logical_or_(figures_.select(0, tensors).ne(0)).to(at::kFloat);
    own_->apply({.lr = inputs.lr,
                 .inv_scale = ops::gradient_multiplier(update_options(config_), inv_scale, norm),
                 .found_inf = found_inf});
    send_parameters();
  }

  [[nodiscard]] torch::Tensor grad_norm() const override { return grad_norm_; }
  [[nodiscard]] torch::Tensor found_inf() const override { return own_->found_inf(); }
  [[nodiscard]] torch::Tensor applied_steps() const override { return own_->applied_steps(); }
  void reset_step() override { own_->reset_step(); }
  [[nodiscard]] int64_t state_bytes() const override { return own_->state_bytes(); }

  [[nodiscard]] StateDict state_dict() const override {
    const at::NoGradGuard no_grad;
    StateDict result;
    const StateDict own = own_->state_dict();
    for (const auto& item : layout_->state_dict()) {
      const at::Tensor whole = from_rank(owner_of_entry(item.key()), own.find(item.key()), item.value());
      if (rank() == 0)
        result.insert(item.key(), whole.to(at::kCPU, whole.scalar_type(), /*non_blocking=*/false, /*copy=*/true));
    }
    return result;
  }

  void load_state_dict(const StateDict& state) override {
    layout_->load_state_dict(state);  // throws if it does not fit
    const at::NoGradGuard no_grad;
    const StateDict mine = own_->state_dict();
    StateDict own;
    for (const auto& item : layout_->state_dict()) {
      const at::Tensor given = rank() == 0 ? state[item.key()].to(figures_.device()) : at::Tensor();
      const at::Tensor value = from_rank(/*root=*/0, &given, item.value());
      if (mine.contains(item.key())) own.insert(item.key(), value.to(at::kCPU));  // one tensor at a time on the device
    }
    own_->load_state_dict(own);
    send_parameters();
  }

  void set_masters(const StateDict& values) override { own_->set_masters(values); }

  [[nodiscard]] std::vector<WeightEma> emas() const override {
    const at::NoGradGuard no_grad;
    std::vector<WeightEma> result;
    if (config_.ema_decay <= 0.0) return result;
    const StateDict own = own_->state_dict();
    const StateDict layout = layout_->state_dict();
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const std::string key = "ema." + parameters_[i].name;
      result.push_back({parameters_[i].tensor, from_rank(owners_[i], own.find(key), layout[key])});
    }
    return result;
  }

  [[nodiscard]] std::optional<std::string> first_non_finite_gradient() const override {
    const std::optional<std::string> own = own_->first_non_finite_gradient();
    auto first = static_cast<int64_t>(parameters_.size());
    for (size_t i = 0; own && i < parameters_.size(); ++i) {
      if (parameters_[i].name == *own) first = static_cast<int64_t>(i);
    }
    std::vector<at::Tensor> tensors{at::full({1}, first, figures_.options().dtype(at::kLong))};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MIN;
    group_->allreduce(tensors, options)->wait();
    first = tensors.front().item<int64_t>();
    if (first == static_cast<int64_t>(parameters_.size())) return std::nullopt;
    return parameters_[static_cast<size_t>(first)].name;
  }

 private:
  [[nodiscard]] int rank() const { return group_->getRank(); }

  /// The norm of every tensor's gradient, in the order of the whole optimizer, followed by the sum of found_inf. Each
  /// rank adds its own figures to zeros, so all ranks get the same bits.
  void gather_norms(const at::Tensor& found_inf) {
    std::vector<at::Tensor> gradients;
    for (const auto& [name, parameter] : own_parameters_) {
      TORCH_CHECK(parameter.grad().defined(), "sharded optimizer: ", name,
                  " has no gradient; DataParallel gives zeros to what a step does not use");
      gradients.push_back(parameter.grad());
    }
    figures_.zero_();
    figures_.index_copy_(0, own_figures_, norms_.norms(gradients));
    if (found_inf.defined()) figures_.select(0, figures_.numel() - 1).copy_(found_inf);
    std::vector<at::Tensor> tensors{figures_};
    group_->allreduce(tensors)->wait();
  }

  void send_parameters() const {
    for (size_t owner = 0; owner < tensors_of_.size(); ++owner) {
      c10d::broadcast_coalesced(group_, tensors_of_[owner], kBroadcastBytes, static_cast<int>(owner));
    }
  }

  [[nodiscard]] int owner_of_entry(const std::string& key) const {
    const std::string name = key.substr(key.find('.') + 1);
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_[i].name == name) return owners_[i];
    }
    return 0;  // "step", which all ranks have
  }

  /// The `value` of rank `root`, on every rank; the others' is not read. `like` has its shape and dtype.
  [[nodiscard]] at::Tensor from_rank(int root, const at::Tensor* value, const at::Tensor& like) const {
    std::vector<at::Tensor> tensors{
        root == rank() ? *value : at::empty(like.sizes(), figures_.options().dtype(like.scalar_type()))};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    group_->broadcast(tensors, options)->wait();
    return tensors.front();
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  OptimizerConfig config_;
  std::vector<NamedParameter> parameters_;
  std::vector<int> owners_;
  std::unique_ptr<BertOptimizer> own_, layout_;      // of this rank's parameters; of all parameters, without memory
  std::vector<std::vector<at::Tensor>> tensors_of_;  // by owner
  std::vector<NamedParameter> own_parameters_;       // in the order of the whole optimizer
  ops::MultiTensor norms_;                           // of this rank's gradients
  at::Tensor own_figures_;                           // int64: indices of this rank's norms in figures_
  at::Tensor figures_;                               // fp64: norms of all gradients, then the sum of found_inf
  at::Tensor grad_norm_;
};

}  // namespace

std::vector<int> assign_owners(const std::vector<NamedParameter>& parameters, int ranks) {
  TORCH_CHECK_VALUE(static_cast<size_t>(ranks) <= parameters.size(), "sharded optimizer: ", ranks, " ranks for ",
                    parameters.size(), " parameters; use at most as many ranks, or do not shard");
  std::vector<int64_t> sizes;
  for (const NamedParameter& parameter : parameters) sizes.push_back(parameter.tensor.numel());
  return owners_of_runs(sizes, ranks);
}

std::unique_ptr<BertOptimizer> make_sharded_optimizer(c10::intrusive_ptr<c10d::ProcessGroup> group,
                                                      const OptimizerConfig& config,
                                                      const std::vector<NamedParameter>& parameters,
                                                      const std::vector<int>& owners) {
  TORCH_CHECK_VALUE(owners.size() == parameters.size(), "sharded optimizer: ", owners.size(), " owners for ",
                    parameters.size(), " parameters");
  for (const auto& [name, tensor] : parameters) {
    TORCH_CHECK_VALUE(tensor.requires_grad(), "sharded optimizer: ", name,
                      " is frozen (no requires_grad) and gets no gradient; leave it out");
  }
  std::vector<int64_t> owned(static_cast<size_t>(group->getSize()));
  for (const int owner : owners) {
    TORCH_CHECK_VALUE(owner >= 0 && owner < group->getSize(), "sharded optimizer: owner ", owner, ", expected 0 to ",
                      group->getSize() - 1);
    ++owned[static_cast<size_t>(owner)];
  }
  for (size_t rank = 0; rank < owned.size(); ++rank) {
    TORCH_CHECK_VALUE(owned[rank] > 0, "sharded optimizer: rank ", rank, " owns no parameter; see assign_owners()");
  }
  auto own = make_grouped_optimizer(without_global_clipping(config),
                                    owned_by(group->getRank(), owners, group_parameters(parameters, config)));
  return std::make_unique<ShardedOptimizer>(std::move(group), config, parameters, owners, std::move(own));
}

}  // namespace bert
