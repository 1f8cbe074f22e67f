// The parameters and buffers of a module by name.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "cuda_ext/state_dict.h"

namespace bert {

/// Parameters and buffers by name, each tensor once (tied weights appear under the first name), sharing storage with
/// the module.
StateDict state_dict(const torch::nn::Module& module);

struct LoadReport {
  std::vector<std::string> missing;     // in the module, not in the source
  std::vector<std::string> unexpected;  // in the source, not in the module
};

/// Copies `source` into `module` (converting dtype and device). Throws c10::Error naming every tensor whose shape
/// differs; with `strict`, also when a name is missing or unexpected.
LoadReport load_state_dict(torch::nn::Module& module, const StateDict& source, bool strict = true);

}  // namespace bert
