#include "app/train/log/layer_report.h"

#include <torch/types.h>

#include <optional>
#include <span>

#include "optim/parameter_norms.h"

namespace bert {
namespace {

nlohmann::ordered_json or_null(const std::optional<double>& number) {
  return number ? nlohmann::ordered_json(*number) : nlohmann::ordered_json(nullptr);
}

TensorHistogram histogram_of_tensor(const torch::Tensor& tensor, double factor) {
  const torch::Tensor host = tensor.detach().to(torch::kCPU, torch::kFloat).contiguous();
  return histogram_of({host.const_data_ptr<float>(), static_cast<size_t>(host.numel())}, factor);
}

}  // namespace

nlohmann::ordered_json layers_line(const OptimizerStep& step, int64_t applied) {
  const StateDict state = step.optimizer->state_dict();  // gathered from all ranks if it is sharded
  if (step.rank() != 0) return nullptr;
  nlohmann::ordered_json line = {{"step", applied}, {"layers", nlohmann::ordered_json::array()}};
  for (const ParameterNorms& norms : parameter_norms(step.parameters(), step.optimizer_config(), state)) {
    line["layers"].push_back({{"name", norms.name},
                              {"weight_norm", norms.weight},
                              {"update_norm", or_null(norms.update)},
                              {"trust_ratio", or_null(norms.trust_ratio)}});
  }
  return line;
}

std::vector<TensorDistribution> distributions_of(const OptimizerStep& step, bool gradients) {
  const torch::NoGradGuard no_grad;
  const double factor = 1.0 / step.last_loss_scale();
  std::vector<TensorDistribution> result;
  for (const NamedParameter& parameter : step.parameters()) {
    TensorDistribution& entry = result.emplace_back();
    entry.name = parameter.name;
    entry.weights = histogram_of_tensor(parameter.tensor, 1.0);
    const torch::Tensor& gradient = parameter.tensor.grad();
    if (gradients && gradient.defined() && step.has_whole_gradient(parameter.name))
      entry.gradients = histogram_of_tensor(gradient, factor);
  }
  return result;
}

}  // namespace bert
