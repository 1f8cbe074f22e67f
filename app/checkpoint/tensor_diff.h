// Comparison of the tensors of two safetensors files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "app/checkpoint/safetensors.h"

namespace bert {

struct TensorDifference {
  bool equal = false;    // same bytes, dtype and shape
  std::string note;      // reason for which the values cannot be compared: absent tensor, other dtype or shape
  double max_abs = 0;    // largest |a - b|; NaN if one value is NaN and the other is not
  int64_t elements = 0;  // number of elements that differ
};

/// Compares the tensor `name` of two files. One of them may lack it.
TensorDifference compare_tensors(const SafetensorsFile& a, const SafetensorsFile& b, const std::string& name);

/// Element `index` of the bytes of a tensor. Integers beyond 2^53 are rounded.
double tensor_element(std::string_view dtype, std::string_view data, int64_t index);

/// Appends the number next to `value`, of two the even one, to the bytes of a tensor of F64, F32, F16 or BF16.
void append_element(std::string_view dtype, double value, std::string& data);

}  // namespace bert
