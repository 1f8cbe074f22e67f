#include "cuda_ext/dispatch/derivative.h"

#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <vector>

namespace bert::dispatch {

void DropoutState::save(AutogradContext* ctx) const {
  ctx->saved_data["p"] = p;
  ctx->saved_data["seed"] = seed;
  ctx->saved_data["site"] = site;
}

DropoutState DropoutState::load(AutogradContext* ctx) {
  return {ctx->saved_data["p"].toDouble(), ctx->saved_data["seed"].toInt(), ctx->saved_data["site"].toInt()};
}

variable_list without_derivative(variable_list gradients) {
  for (at::Tensor& gradient : gradients) {
    if (gradient.defined()) gradient = gradient.detach().requires_grad_();
  }
  torch::autograd::DelayedError error("bert::ops: the operators have first derivatives only, not those of gradients",
                                      static_cast<int64_t>(gradients.size()));
  return error.apply(std::move(gradients));
}

at::Tensor gradient_sum(const at::Tensor& parameter) {
  namespace autograd = torch::autograd;
  if (!parameter.is_cuda() || !parameter.is_leaf() || !parameter.requires_grad()) return {};
  const auto* const wanted = autograd::get_current_graph_task_exec_info();
  if (wanted == nullptr || !wanted->empty() || autograd::get_current_graph_task_keep_graph()) return {};
  if (!autograd::impl::hooks(parameter).empty() || autograd::impl::post_acc_grad_hooks(parameter) != nullptr) return {};
  const at::Tensor& sum = parameter.grad();
  return sum.defined() && sum.scalar_type() == at::kFloat && sum.is_contiguous() ? sum : at::Tensor();
}

void add_to_sums(std::initializer_list<ParameterGradient> gradients) {
  std::vector<at::Tensor> sums, terms;
  for (const auto& [parameter, gradient] : gradients) {
    const at::Tensor sum = gradient.defined() ? gradient_sum(parameter) : at::Tensor();
    if (!sum.defined()) continue;
    sums.push_back(sum);
    terms.push_back(std::exchange(gradient, at::Tensor()));
  }
  if (!sums.empty()) at::_foreach_add_(sums, terms);
}

}  // namespace bert::dispatch
