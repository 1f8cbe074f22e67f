#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "optim/optimizer.h"

namespace bert {
namespace {

/// The number in "layer.<number>." of a name.
struct LayerNumber {
  size_t begin, end;  // its place in the name
  int64_t value;
};

std::optional<LayerNumber> layer_number(std::string_view name) {
  constexpr std::string_view kLayer = "layer.";
  for (size_t at = name.find(kLayer); at != std::string_view::npos; at = name.find(kLayer, at + 1)) {
    const char* const first = name.data() + at + kLayer.size();
    int64_t value = 0;
    const auto [last, error] = std::from_chars(first, name.data() + name.size(), value);
    if (error == std::errc() && last != name.data() + name.size() && *last == '.') {
      return LayerNumber{static_cast<size_t>(first - name.data()), static_cast<size_t>(last - name.data()), value};
    }
  }
  return std::nullopt;
}

/// Depth of a parameter below the top: 0 for heads and pooler, `layers` for layer 0, one more for embeddings.
int64_t depth_of(const std::string& name, int64_t layers) {
  if (const auto layer = layer_number(name)) return layers - layer->value;
  return name.find("embeddings.") != std::string::npos ? layers + 1 : 0;
}

}  // namespace

std::vector<NamedParameter> named_parameters(const torch::nn::Module& module) {
  std::vector<NamedParameter> result;
  std::unordered_set<const at::TensorImpl*> seen;
  for (const auto& item : module.named_parameters()) {
    if (seen.insert(item.value().unsafeGetTensorImpl()).second) result.push_back({item.key(), item.value()});
  }
  return result;
}

bool decays(const std::string& parameter_name, const std::vector<std::string>& no_decay) {
  return std::ranges::none_of(no_decay,
                              [&](const std::string& part) { return parameter_name.find(part) != std::string::npos; });
}

std::vector<NamedParameterGroup> group_parameters(const std::vector<NamedParameter>& parameters,
                                                  const OptimizerConfig& config) {
  int64_t layers = 0;
  for (const NamedParameter& parameter : parameters) {
    if (const auto layer = layer_number(parameter.name)) layers = std::max(layers, layer->value + 1);
  }
  TORCH_CHECK_VALUE(layers > 0 || config.layer_lr_decay == 1.0 || parameters.empty(), "optimizer.layer_lr_decay is ",
                    config.layer_lr_decay, ", and no parameter has \"layer.<number>.\" in its name; the first is ",
                    parameters.front().name, ". Leave it at 1, or name the layers so.");
  std::map<std::pair<bool, double>, NamedParameterGroup, std::greater<>> groups;  // with decay first, then by rate
  for (size_t place = 0; place < parameters.size(); ++place) {
    const NamedParameter& parameter = parameters[place];
    const bool decaying = decays(parameter.name, config.no_decay);
    const double lr_scale = std::pow(config.layer_lr_decay, depth_of(parameter.name, layers));
    NamedParameterGroup& group = groups[{decaying, lr_scale}];
    group.weight_decay = decaying ? config.weight_decay : 0.0;
    group.lr_scale = lr_scale;
    group.parameters.push_back(parameter);
    group.places.push_back(place);
  }
  std::vector<NamedParameterGroup> result;
  for (auto& [key, group] : groups) result.push_back(std::move(group));
  return result;
}

std::string describe(const std::vector<NamedParameterGroup>& groups) {
  std::string text;
  for (const NamedParameterGroup& group : groups) {
    int64_t elements = 0;
    std::vector<std::pair<std::string, int64_t>> lines;  // each with its number of tensors
    for (const NamedParameter& parameter : group.parameters) {
      elements += parameter.tensor.numel();
      const std::string& name = parameter.name;
      const auto layer = layer_number(name);
      const std::string shown = layer ? c10::str(name.substr(0, layer->begin), "*", name.substr(layer->end)) : name;
      const std::string line = c10::str("  ", shown, " ", parameter.tensor.sizes());
      const auto same = std::ranges::find_if(lines, [&](const auto& seen) { return seen.first == line; });
      if (same == lines.end()) {
        lines.emplace_back(line, 1);
      } else {
        ++same->second;
      }
    }
    text += c10::str("weight decay ", group.weight_decay);
    if (group.lr_scale != 1.0) text += c10::str(", rate x ", group.lr_scale);
    text += c10::str(": ", group.parameters.size(), " tensors, ", elements, " elements\n");
    for (const auto& [line, count] : lines) text += count == 1 ? line + "\n" : c10::str(line, " x ", count, "\n");
  }
  return text;
}

}  // namespace bert
