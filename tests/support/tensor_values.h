// Elements of tensors in files as numbers.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "app/checkpoint/safetensors.h"

namespace bert::testing {

template <class T>
double element_at(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return static_cast<double>(value);
}

/// Half and bfloat16 as bits of a float: the exponent and the fraction move, by hand.
inline double half_at(const char* bytes) {
  const auto bits = static_cast<uint32_t>(element_at<uint16_t>(bytes));
  const int exponent = static_cast<int>(bits >> 10 & 31);
  const double fraction = (bits & 1023) / 1024.0;
  const double size =
      exponent == 0 ? fraction * 0x1p-14 : (1 + fraction) * std::bit_cast<double>(uint64_t(exponent + 1008) << 52);
  return (bits & 0x8000) != 0 ? -size : size;
}

inline double bfloat16_at(const char* bytes) {
  return std::bit_cast<float>(static_cast<uint32_t>(element_at<uint16_t>(bytes)) << 16);
}

/// The elements of `bytes` as numbers of safetensors' `dtype`.
inline std::vector<double> values_of(const std::string& dtype, std::string_view bytes) {
  double (*at)(const char*) = nullptr;
  if (dtype == "F32") at = element_at<float>;
  if (dtype == "F64") at = element_at<double>;
  if (dtype == "F16") at = half_at;
  if (dtype == "BF16") at = bfloat16_at;
  if (dtype == "I64") at = element_at<int64_t>;
  if (dtype == "I32") at = element_at<int32_t>;
  if (dtype == "I16") at = element_at<int16_t>;
  if (dtype == "I8") at = element_at<int8_t>;
  if (dtype == "U8" || dtype == "BOOL") at = element_at<uint8_t>;
  if (at == nullptr) throw std::logic_error("no numbers of dtype " + dtype);
  std::vector<double> values;
  const auto width = static_cast<size_t>(element_bytes(dtype));
  for (size_t i = 0; i + width <= bytes.size(); i += width) values.push_back(at(bytes.data() + i));
  return values;
}

}  // namespace bert::testing
