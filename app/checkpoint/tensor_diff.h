#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "app/checkpoint/safetensors.h"

namespace bert {

struct TensorDifference {
  bool equal = false;    // the same bytes, dtype and shape
  std::string note;      // why the values cannot be compared: absent, another dtype or shape
  double max_abs = 0;    // largest |a - b|; NaN where one is NaN and the other is not
  int64_t elements = 0;  // that differ
};

/// Compares the tensor `name` of two files, one of which may lack it.
TensorDifference compare_tensors(const SafetensorsFile& a, const SafetensorsFile& b, const std::string& name);

/// Element `index` of a tensor's bytes. Integers beyond 2^53 are rounded.
double tensor_element(std::string_view dtype, std::string_view data, int64_t index);

}  // namespace bert
