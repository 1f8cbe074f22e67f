#include <c10/util/Exception.h>

#include <array>
#include <string_view>
#include <unordered_map>

#include "optim/adam.h"
#include "optim/lamb.h"
#include "optim/optimizer.h"

namespace bert {

bool decays(const std::string& parameter_name) {
  constexpr std::array<std::string_view, 4> kNoDecay{"bias", "gamma", "beta", "LayerNorm"};
  for (const std::string_view part : kNoDecay) {
    if (parameter_name.find(part) != std::string::npos) return false;
  }
  return true;
}

std::vector<NamedParameterGroup> group_parameters(const std::vector<NamedParameter>& parameters, double weight_decay) {
  std::vector<NamedParameterGroup> groups(2);
  groups[0].weight_decay = weight_decay;
  for (const NamedParameter& parameter : parameters) {
    groups[decays(parameter.name) ? 0 : 1].parameters.push_back(parameter);
  }
  std::erase_if(groups, [](const NamedParameterGroup& group) { return group.parameters.empty(); });
  return groups;
}

std::string describe(const std::vector<NamedParameterGroup>& groups) {
  std::string lines;
  for (const NamedParameterGroup& group : groups) {
    int64_t elements = 0;
    std::string names;
    for (const NamedParameter& parameter : group.parameters) {
      elements += parameter.tensor.numel();
      names += c10::str("  ", parameter.name, " ", parameter.tensor.sizes(), "\n");
    }
    lines += c10::str("weight decay ", group.weight_decay, ": ", group.parameters.size(), " tensors, ", elements,
                      " elements\n", names);
  }
  return lines;
}

std::unique_ptr<BertOptimizer> make_optimizer(const OptimizerConfig& config,
                                              const std::vector<NamedParameter>& parameters) {
  validate(config);
  const std::vector<NamedParameterGroup> groups = group_parameters(parameters, config.weight_decay);
  if (config.type == "lamb") return std::make_unique<Lamb>(groups, config);
  return std::make_unique<AdamW>(groups, config);
}

}  // namespace bert
