// Shared by the CUDA registrations, the .cc files of the CUDA build: raw pointers for the kernels from tensors. A
// registration allocates results, finds the kernel for the dtypes, and launches it on LibTorch's stream. Other dtypes
// (double) go to the compositions.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <initializer_list>

#include "cuda_ext/dispatch/dropout.h"
#include "cuda_ext/kernels/launcher.h"
#include "cuda_ext/scalar/philox.h"

namespace bert::cuda {

using at::Tensor;
using composite::OptionalTensor;

template <class T>
struct Type {
  using type = T;
};

/// Calls run(Type<activations>, Type<parameters>) if there are kernels for these dtypes. Returns true if it called run.
template <class Run>
bool with_types(const Tensor& x, const Tensor& parameter, const Run& run) {
  const at::ScalarType activations = x.scalar_type(), parameters = parameter.scalar_type();
  const auto low = [&](auto type) {
    if (parameters == activations) return run(type, type), true;
    if (parameters == at::kFloat) return run(type, Type<float>()), true;
    return false;
  };
  if (activations == at::kHalf) return low(Type<c10::Half>());
  if (activations == at::kBFloat16) return low(Type<c10::BFloat16>());
  if (activations == at::kFloat && parameters == at::kFloat) return run(Type<float>(), Type<float>()), true;
  return false;
}

/// with_types() for kernels of activations alone: run(Type<activations>).
template <class Run>
bool with_type(const Tensor& x, const Run& run) {
  switch (x.scalar_type()) {
    case at::kHalf:
      return run(Type<c10::Half>()), true;
    case at::kBFloat16:
      return run(Type<c10::BFloat16>()), true;
    case at::kFloat:
      return run(Type<float>()), true;
    default:
      return false;
  }
}

inline bool same_type(const Tensor& like, std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* tensor : tensors) {
    if (tensor->scalar_type() != like.scalar_type()) return false;
  }
  return true;
}

template <class T>
const T* in(const Tensor& tensor) {
  return tensor.const_data_ptr<T>();
}
template <class T>
T* out(const Tensor& tensor) {
  return tensor.mutable_data_ptr<T>();
}

inline Tensor floats(const Tensor& like, at::IntArrayRef shape) {
  return at::empty(shape, like.options().dtype(at::kFloat));
}

inline kernels::DropoutMask dropout_mask(double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
  if (p == 0.0) return {};
  return {.keys = in<int64_t>(*keys),
          .seed = static_cast<uint64_t>(seed),
          .site = static_cast<uint32_t>(site),
          .threshold = dropout_threshold(p),
          .scale = static_cast<float>(1.0 / (1.0 - p))};
}

}  // namespace bert::cuda
