// The parameters and buffers of a module by name.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "cuda_ext/state_dict.h"

namespace bert {

/// Parameters and buffers by name. Each tensor occurs once (a tied weight under its first name) and shares storage with
/// the module.
StateDict state_dict(const torch::nn::Module& module);

struct LoadReport {
  std::vector<std::string> missing;     // in the module, not in the source
  std::vector<std::string> unexpected;  // in the source, not in the module
};

enum class LoadMode {
  kCopy,
  kShare,  // parameters of the dtype and the device of their source become its tensors, and must not be written to
};

/// Copies `source` into `module` and converts dtype and device. A tensor of device meta is checked, and leaves the
/// value as it is. Throws c10::Error with every tensor whose shape differs; with `strict`, also if a name is missing or
/// unexpected.
LoadReport load_state_dict(torch::nn::Module& module, const StateDict& source, bool strict = true,
                           LoadMode mode = LoadMode::kCopy);

}  // namespace bert
