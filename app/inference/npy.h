// NumPy's file format for one array.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace bert {

/// Writes an fp32 tensor as a .npy file, version 1.0, that numpy.load() reads: whole or absent. Throws IoError. Source:
/// numpy.lib.format.
void save_npy(const std::string& path, const at::Tensor& tensor);

}  // namespace bert
