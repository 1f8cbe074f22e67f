// The common currency between the folders: tensors by name.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <string>

namespace bert {

using StateDict = torch::OrderedDict<std::string, at::Tensor>;

}  // namespace bert
