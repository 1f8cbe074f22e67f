#include "optim/parameter_norms.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "optim/moment_optimizer.h"

namespace bert {
namespace {

double norm_of(const at::Tensor& tensor) { return at::norm(tensor, 2, at::kDouble).item<double>(); }

/// u of `step` steps. Weight decay that is not decoupled is in the moments.
at::Tensor update_of(const at::Tensor& p, const at::Tensor& m, const at::Tensor& v, const UpdateOptions& o,
                     int64_t step) {
  const auto t = static_cast<double>(step);
  const double m_share = o.bias_correction ? 1.0 - std::pow(o.beta1, t) : 1.0;
  const double v_share = o.bias_correction ? 1.0 - std::pow(o.beta2, t) : 1.0;
  const at::Tensor vhat = v / v_share;
  const at::Tensor u = (m / m_share) / (vhat.sqrt() + o.eps);
  return o.decoupled && o.weight_decay != 0.0 ? u + p * o.weight_decay : u;
}

double ratio_of(double weight, double update, const UpdateOptions& o) {
  if (!o.trust_ratio || weight == 0.0 || update == 0.0) return 1.0;
  return weight / update;
}

}  // namespace

std::vector<ParameterNorms> parameter_norms(const std::vector<NamedParameter>& parameters,
                                            const OptimizerConfig& config, const StateDict& state) {
  const at::NoGradGuard no_grad;
  const auto step = state["step"].item<int64_t>();
  std::vector<ParameterNorms> result(parameters.size());
  for (const NamedParameterGroup& group : group_parameters(parameters, config)) {
    OptimizerConfig of_group = config;
    of_group.weight_decay = group.weight_decay;
    const UpdateOptions options = update_options(of_group);
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      const auto& [name, tensor] = group.parameters[i];
      const at::Tensor& m = state["exp_avg." + name];
      const at::Tensor* master = state.find("master." + name);
      const at::Tensor p = (master != nullptr ? *master : tensor.detach()).to(m.device(), m.scalar_type());
      ParameterNorms& norms = result[group.places[i]];
      norms = {.name = name, .weight = norm_of(p), .update = std::nullopt, .trust_ratio = std::nullopt};
      if (step == 0 || !tensor.grad().defined()) continue;
      norms.update = norm_of(update_of(p, m, state["exp_avg_sq." + name], options, step));
      if (config.type == OptimizerType::kLamb) norms.trust_ratio = ratio_of(norms.weight, *norms.update, options);
    }
  }
  return result;
}

}  // namespace bert
