// The weight of a linear layer, laid out once for many products without gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace bert::ops {

enum class Products {
  kOfDtype,  // those of linear()
  kInt8,     // of bytes: Note [Products of bytes], cuda_ext/cpu/int8_linear.h
};

/// y = x weight^T + bias as linear() computes it, for one weight and any x. Copies the weight; a change of it afterwards
/// has no effect. Any number of threads may call it at once. Gradients do not pass.
class PreparedLinear {
 public:
  /// weight [N, K], bias [N] or undefined, of one dtype: fp32, bf16 or fp16. kInt8: fp32 on the CPU; throws c10::Error
  /// on a processor without AVX2.
  explicit PreparedLinear(const at::Tensor& weight, const at::Tensor& bias = {},
                          Products products = Products::kOfDtype);

  /// x [T, K] of the weight's dtype and device -> [T, N] of that dtype.
  [[nodiscard]] at::Tensor operator()(const at::Tensor& x) const { return product_(x); }

 private:
  std::function<at::Tensor(const at::Tensor&)> product_;
};

}  // namespace bert::ops
