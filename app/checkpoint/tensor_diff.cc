#include "app/checkpoint/tensor_diff.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace bert {
namespace {

template <class T>
T read(std::string_view data, int64_t index) {
  T value;
  std::memcpy(&value, data.data() + static_cast<size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

/// Decodes a small float: sign, `exponent_bits`, `mantissa_bits`. `finite`: there is no infinity, and only all ones is
/// NaN (F8_E4M3).
double small_float(uint32_t bits, int exponent_bits, int mantissa_bits, bool finite = false) {
  const uint32_t mantissa = bits & ((1U << mantissa_bits) - 1);
  const int exponent = static_cast<int>(bits >> mantissa_bits & ((1U << exponent_bits) - 1));
  const int largest = (1 << exponent_bits) - 1, bias = largest >> 1;
  const double sign = (bits >> (exponent_bits + mantissa_bits) & 1) != 0 ? -1 : 1;
  if (exponent == largest && (!finite || mantissa == (1U << mantissa_bits) - 1)) {
    if (!finite && mantissa == 0) return sign * std::numeric_limits<double>::infinity();
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1U << mantissa_bits), exponent - bias - mantissa_bits);
}

/// The inverse of small_float() with infinities.
uint32_t small_float_bits(double value, int exponent_bits, int mantissa_bits) {
  const uint32_t sign = std::signbit(value) ? 1U << (exponent_bits + mantissa_bits) : 0;
  const uint32_t infinity = ((1U << exponent_bits) - 1) << mantissa_bits;
  if (std::isnan(value)) return sign | infinity | 1U << (mantissa_bits - 1);
  if (value == 0) return sign;
  const int least = 2 - (1 << (exponent_bits - 1));  // the exponent of the subnormal numbers
  const int exponent = std::isinf(value) ? -least + 2 : std::max(std::ilogb(value), least);
  if (exponent > 1 - least) return sign | infinity;
  const auto mantissa =
      static_cast<uint32_t>(std::nearbyint(std::ldexp(std::abs(value), mantissa_bits - exponent)));  // to even
  return sign | std::min(infinity, (static_cast<uint32_t>(exponent - least) << mantissa_bits) + mantissa);
}

template <class T>
void append(T value, std::string& data) {
  data.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

/// Dtype and shape for messages: "F32 [2, 3]".
std::string described(const TensorInfo& tensor) {
  std::string sizes;
  for (const int64_t size : tensor.shape) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  return tensor.dtype + " [" + sizes + "]";
}

}  // namespace

double tensor_element(std::string_view dtype, std::string_view data, int64_t index) {
  if (dtype == "F64") return read<double>(data, index);
  if (dtype == "F32") return read<float>(data, index);
  if (dtype == "F16") return small_float(read<uint16_t>(data, index), 5, 10);
  if (dtype == "BF16") return small_float(read<uint16_t>(data, index), 8, 7);
  if (dtype == "F8_E4M3") return small_float(read<uint8_t>(data, index), 4, 3, true);
  if (dtype == "F8_E5M2") return small_float(read<uint8_t>(data, index), 5, 2);
  if (dtype == "I64") return static_cast<double>(read<int64_t>(data, index));
  if (dtype == "I32") return read<int32_t>(data, index);
  if (dtype == "I16") return read<int16_t>(data, index);
  if (dtype == "I8") return read<int8_t>(data, index);
  if (dtype == "U64") return static_cast<double>(read<uint64_t>(data, index));
  if (dtype == "U32") return read<uint32_t>(data, index);
  if (dtype == "U16") return read<uint16_t>(data, index);
  return read<uint8_t>(data, index);  // U8, BOOL
}

void append_element(std::string_view dtype, double value, std::string& data) {
  if (dtype == "F64") return append(value, data);
  if (dtype == "F32") return append(static_cast<float>(value), data);
  const bool half = dtype == "F16";
  append(static_cast<uint16_t>(small_float_bits(value, half ? 5 : 8, half ? 10 : 7)), data);
}

TensorDifference compare_tensors(const SafetensorsFile& a, const SafetensorsFile& b, const std::string& name) {
  TensorDifference result;
  const TensorInfo *in_a = a.find(name), *in_b = b.find(name);
  if (in_a == nullptr || in_b == nullptr) {
    result.note = in_a == nullptr ? "only in B" : "only in A";
    return result;
  }
  if (in_a->dtype != in_b->dtype || in_a->shape != in_b->shape) {
    result.note = described(*in_a) + " in A, " + described(*in_b) + " in B";
    return result;
  }
  const std::string_view a_data = a.data(*in_a), b_data = b.data(*in_b);
  result.equal = a_data == b_data;
  if (result.equal) return result;
  const int64_t width = element_bytes(in_a->dtype);
  for (int64_t i = 0; i < in_a->bytes / width; ++i) {
    if (std::memcmp(a_data.data() + i * width, b_data.data() + i * width, static_cast<size_t>(width)) == 0) continue;
    ++result.elements;
    const double distance = std::abs(tensor_element(in_a->dtype, a_data, i) - tensor_element(in_a->dtype, b_data, i));
    if (std::isnan(distance) || distance > result.max_abs) result.max_abs = distance;
  }
  return result;
}

}  // namespace bert
