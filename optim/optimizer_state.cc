#include "optim/optimizer_state.h"

#include <ATen/ATen.h>

#include <unordered_set>
#include <utility>

namespace bert {
namespace {

const std::string kMaster = "master.";

/// The dtype of masters, moments and moving averages: fp32, or fp64 for fp64 parameters.
c10::ScalarType state_dtype(c10::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

/// Takes entries from one state and records the outcome.
class Fitting {
 public:
  explicit Fitting(const StateDict& source) : source_(source) {}

  /// Takes all the entries or none. Missing and reshaped entries get their values from `initial`.
  void take(const std::vector<std::pair<std::string, torch::Tensor>>& initial) {
    bool all = true;
    for (const auto& [name, value] : initial) {
      known_.insert(name);
      const torch::Tensor* given = source_.find(name);
      if (given == nullptr) {
        result_.missing.push_back(name);
      } else if (given->sizes() != value.sizes()) {
        result_.reshaped.push_back(c10::str(name, ": expected ", value.sizes(), ", got ", given->sizes()));
      } else {
        continue;
      }
      all = false;
    }
    for (const auto& [name, value] : initial) {
      result_.state.insert(name, all ? source_[name].to(value.scalar_type()) : value);
      if (all) result_.loaded.push_back(name);
    }
  }

  FittedState finish() {
    for (const auto& item : source_) {
      if (!known_.contains(item.key())) result_.unexpected.push_back(item.key());
    }
    return std::move(result_);
  }

 private:
  const StateDict& source_;
  std::unordered_set<std::string> known_;
  FittedState result_;
};

}  // namespace

TrainingBytes bytes_per_parameter(const OptimizerConfig& config, c10::ScalarType dtype) {
  const auto weight = static_cast<int64_t>(c10::elementSize(dtype)),
             full = static_cast<int64_t>(c10::elementSize(state_dtype(dtype)));
  return {.weight = weight,
          .gradient = full,
          .moments = 2 * full,
          .master = weight < full ? full : 0,
          .ema = config.ema_decay > 0.0 ? full : 0};
}

std::string FittedState::report() const {
  std::string text = c10::str(loaded.size(), " entries taken");
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    for (const std::string& name : names) text += c10::str("\n  ", what, ": ", name);
  };
  add("missing", missing);
  add("reshaped", reshaped);
  add("unexpected", unexpected);
  return text;
}

FittedState fit_state(const OptimizerConfig& config, const std::vector<NamedParameter>& parameters,
                      const StateDict& state) {
  const at::NoGradGuard no_grad;
  Fitting fitting(state);
  fitting.take({{"step", at::zeros({}, at::kLong)}});
  for (const auto& [name, tensor] : parameters) {
    const torch::Tensor value = tensor.detach().to(state_dtype(tensor.scalar_type()));
    const torch::Tensor zeros = at::zeros_like(value);
    fitting.take({{"exp_avg." + name, zeros}, {"exp_avg_sq." + name, zeros}});
    if (value.scalar_type() != tensor.scalar_type()) fitting.take({{kMaster + name, value}});
    if (config.ema_decay > 0.0) fitting.take({{"ema." + name, value}});
  }
  return fitting.finish();
}

NextPhase next_phase(const OptimizerConfig& config, const std::vector<NamedParameter>& parameters,
                     const EarlierRun& earlier) {
  const auto is_moment = [](const std::string& entry) { return entry.starts_with("exp_avg"); };
  NextPhase next;
  for (const auto& item : earlier.weights) {
    const torch::Tensor* master = earlier.optimizer_state.find(kMaster + item.key());
    next.weights.insert(item.key(), master != nullptr ? *master : item.value());
  }
  StateDict taken;
  for (const auto& item : earlier.optimizer_state) {
    if (earlier.keep_moments && is_moment(item.key())) taken.insert(item.key(), item.value());
  }
  std::vector<NamedParameter> begun;  // the parameters with the values of the weights
  for (const auto& [name, tensor] : parameters) {
    const torch::Tensor* weight = next.weights.find(name);
    begun.push_back(
        {name, weight != nullptr && weight->sizes() == tensor.sizes() ? weight->to(tensor.scalar_type()) : tensor});
    if (weight == nullptr) continue;
    taken.insert(kMaster + name, *weight);
    taken.insert("ema." + name, *weight);  // not the rounded weight
  }
  FittedState fitted = fit_state(config, begun, taken);
  for (auto* list : {&fitted.missing, &fitted.reshaped, &fitted.unexpected}) {
    std::erase_if(*list, [&](const std::string& entry) { return !is_moment(entry); });
  }
  TORCH_CHECK_VALUE(!earlier.keep_moments || fitted.complete(),
                    "optimizer: the moments are not those of the model's parameters; start from the weights alone, or "
                    "with the model that they were saved with. ",
                    fitted.report());
  next.optimizer_state = std::move(fitted.state);
  return next;
}

}  // namespace bert
