#include "tests/null_device/libraries/nccl_arithmetic.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace null_device {
namespace {

// The arithmetic of a type: fp16 and bf16 compute in float, integers without a sign so that an overflow wraps.
float wide(__half value) { return __half2float(value); }
float wide(__nv_bfloat16 value) { return __bfloat162float(value); }
template <class T>
T wide(T value) {
  return value;
}

template <class T, class Wide>
T rounded(Wide value) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(value);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(value);
  } else {
    return static_cast<T>(value);
  }
}

template <class T>
constexpr bool kIsInteger = std::is_integral_v<T>;

template <class T>
T sum(T a, T b) {
  if constexpr (kIsInteger<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return rounded<T>(wide(a) + wide(b));
  }
}

template <class T>
T product(T a, T b) {
  if constexpr (kIsInteger<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return rounded<T>(wide(a) * wide(b));
  }
}

template <class T>
T larger(T a, T b) {
  if constexpr (kIsInteger<T>) {
    return a > b ? a : b;
  } else {
    return rounded<T>(std::fmax(wide(a), wide(b)));
  }
}

template <class T>
T smaller(T a, T b) {
  if constexpr (kIsInteger<T>) {
    return a < b ? a : b;
  } else {
    return rounded<T>(std::fmin(wide(a), wide(b)));
  }
}

/// result[i] = step(... step(first(of_ranks[0][i]), first(of_ranks[1][i])) ...)
template <class T, class First, class Step>
void fold(const std::vector<const void*>& of_ranks, size_t count, void* result, First first, Step step) {
  T* const target = static_cast<T*>(result);
  for (size_t i = 0; i < count; ++i) {
    T value = first(static_cast<const T*>(of_ranks[0])[i]);
    for (size_t rank = 1; rank < of_ranks.size(); ++rank)
      value = step(value, first(static_cast<const T*>(of_ranks[rank])[i]));
    target[i] = value;
  }
}

template <class T>
void mean(const std::vector<const void*>& of_ranks, size_t count, void* result) {
  const auto same = [](T value) { return value; };
  if constexpr (kIsInteger<T>) {
    fold<T>(of_ranks, count, result, same, sum<T>);
    T* const target = static_cast<T*>(result);
    for (size_t i = 0; i < count; ++i) target[i] = static_cast<T>(target[i] / static_cast<T>(of_ranks.size()));
  } else {
    const T factor = rounded<T>(static_cast<decltype(wide(T{}))>(1.0 / static_cast<double>(of_ranks.size())));
    fold<T>(
        of_ranks, count, result, [&](T value) { return product(value, factor); }, sum<T>);
  }
}

template <class T>
void combine_as(ncclRedOp_t operation, const std::vector<const void*>& of_ranks, size_t count, void* result) {
  const auto same = [](T value) { return value; };
  switch (operation) {
    case ncclSum:
      return fold<T>(of_ranks, count, result, same, sum<T>);
    case ncclProd:
      return fold<T>(of_ranks, count, result, same, product<T>);
    case ncclMax:
      return fold<T>(of_ranks, count, result, same, larger<T>);
    case ncclMin:
      return fold<T>(of_ranks, count, result, same, smaller<T>);
    default:
      return mean<T>(of_ranks, count, result);
  }
}

}  // namespace

size_t element_bytes(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

std::string type_name(ncclDataType_t type) {
  static const std::vector<std::string> kNames = {"int8",   "uint8",   "int32",   "uint32",  "int64",
                                                  "uint64", "float16", "float32", "float64", "bfloat16"};
  const auto number = static_cast<size_t>(type);
  return number < kNames.size() ? kNames[number] : "type " + std::to_string(number);
}

std::string operation_name(ncclRedOp_t operation) {
  static const std::vector<std::string> kNames = {"sum", "product", "maximum", "minimum", "mean"};
  const auto number = static_cast<size_t>(operation);
  return number < kNames.size() ? kNames[number] : "";
}

void combine(ncclDataType_t type, ncclRedOp_t operation, const std::vector<const void*>& of_ranks, size_t count,
             void* result) {
  switch (type) {
    case ncclInt8:
      return combine_as<int8_t>(operation, of_ranks, count, result);
    case ncclUint8:
      return combine_as<uint8_t>(operation, of_ranks, count, result);
    case ncclInt32:
      return combine_as<int32_t>(operation, of_ranks, count, result);
    case ncclUint32:
      return combine_as<uint32_t>(operation, of_ranks, count, result);
    case ncclInt64:
      return combine_as<int64_t>(operation, of_ranks, count, result);
    case ncclUint64:
      return combine_as<uint64_t>(operation, of_ranks, count, result);
    case ncclFloat16:
      return combine_as<__half>(operation, of_ranks, count, result);
    case ncclFloat32:
      return combine_as<float>(operation, of_ranks, count, result);
    case ncclFloat64:
      return combine_as<double>(operation, of_ranks, count, result);
    case ncclBfloat16:
      return combine_as<__nv_bfloat16>(operation, of_ranks, count, result);
    default:
      return;  // element_bytes() is 0, and callers refuse it
  }
}

}  // namespace null_device
