// The products of linear layers on the CPU, shared by linear() and by prepared weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace bert::cpu {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

/// True if LibTorch has oneDNN and its use is not switched off.
bool has_one_dnn();

/// True if products of x's dtype are computed in fp32: Note [GEMM backends of the CPU], linear.cc.
bool widened(const Tensor& x);

/// x weight^T + bias by oneDNN, for fp32 and bf16. The weight is plain, or laid out by mkldnn::_reorder_linear_weight.
Tensor linear_pointwise(const Tensor& x, const Tensor& weight, const OptionalTensor& bias);

/// x weight^T + bias by the faster of MKL and oneDNN.
Tensor product_and_bias(const Tensor& x, const Tensor& weight, const OptionalTensor& bias);

}  // namespace bert::cpu
