// Tensors by name: the type that all folders exchange.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <string>

namespace bert {

using StateDict = torch::OrderedDict<std::string, at::Tensor>;

}  // namespace bert
