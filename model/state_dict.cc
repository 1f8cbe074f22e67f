#include "model/state_dict.h"

#include <string>
#include <unordered_set>

namespace bert {
namespace {

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += "\n  " + name;
  return text;
}

}  // namespace

StateDict state_dict(const torch::nn::Module& module) {
  StateDict result;
  std::unordered_set<const void*> seen;
  const auto add = [&](const StateDict& tensors) {
    for (const auto& item : tensors) {
      if (seen.insert(item.value().unsafeGetTensorImpl()).second) result.insert(item.key(), item.value());
    }
  };
  add(module.named_parameters());
  add(module.named_buffers());
  return result;
}

LoadReport load_state_dict(torch::nn::Module& module, const StateDict& source, bool strict, LoadMode mode) {
  const StateDict target = state_dict(module);
  LoadReport report;
  std::vector<std::string> shapes;
  for (const auto& item : target) {
    const torch::Tensor* value = source.find(item.key());
    if (value == nullptr) {
      report.missing.push_back(item.key());
    } else if (value->sizes() != item.value().sizes()) {
      shapes.push_back(c10::str(item.key(), ": expected ", item.value().sizes(), ", got ", value->sizes()));
    }
  }
  for (const auto& item : source) {
    if (!target.contains(item.key())) report.unexpected.push_back(item.key());
  }
  TORCH_CHECK(shapes.empty(), "load_state_dict: shapes differ from the model's; load with the configuration that the ",
              "weights were saved with:", join(shapes));
  TORCH_CHECK(!strict || (report.missing.empty() && report.unexpected.empty()), "load_state_dict: missing (",
              report.missing.size(), "):", join(report.missing), "\nunexpected (", report.unexpected.size(),
              "):", join(report.unexpected));

  const torch::NoGradGuard no_grad;
  for (const auto& item : target) {
    const torch::Tensor* value = source.find(item.key());
    if (value == nullptr || value->is_meta()) continue;
    const bool alike = value->dtype() == item.value().dtype() && value->device() == item.value().device();
    if (alike && mode == LoadMode::kShare) {
      item.value().set_data(value->detach());
    } else {
      item.value().copy_(*value);
    }
  }
  return report;
}

}  // namespace bert
