// Norms of parameters and of their updates, for reports.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "optim/optimizer.h"

namespace bert {

/// The l2 norms of a parameter p and of its update u, which a step multiplies by the rate and, with LAMB, by the trust
/// ratio: Lamb in optim/lamb.h.
struct ParameterNorms {
  std::string name;
  double weight = 0;
  std::optional<double> update;       // none: no step has been applied, or the parameter has no gradient
  std::optional<double> trust_ratio;  // of LAMB
};

/// The norms in the order of `parameters`. `state` is state_dict() of the optimizer that make_optimizer() made of
/// `config` and `parameters`. u is computed from the moments and p as they are. The last step had the same moments, and
/// p before the step: its own norms differ from these by a relative error of about rate * trust ratio * |u| / |p|.
/// Computes in the dtype of the moments, and sums in fp64. Waits for the device.
[[nodiscard]] std::vector<ParameterNorms> parameter_norms(const std::vector<NamedParameter>& parameters,
                                                          const OptimizerConfig& config, const StateDict& state);

}  // namespace bert
