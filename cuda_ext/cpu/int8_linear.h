// A linear layer whose products are of bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace bert::cpu {

/// Note [Products of bytes]
/// weight = w scale with signed bytes w and a scale for each row of the weight (each output); scale = largest |value| of
/// the row / 127. x = (q - zero) scale with unsigned bytes q and a scale for each row of x (each token), found when the
/// product runs. So the result for a token does not depend on the other tokens of a batch. The sums of products are
/// exact in 32 bits. FBGEMM, which LibTorch contains, computes them. Without AVX-512 VNNI its kernels add two products
/// in 16 bits, which saturate; there q has 7 bits (1 to 127, zero 64), so that no sum saturates.
///
/// Returns y(x) = x weight^T + bias for x [T, K] fp32. weight [N, K] fp32, bias [N] fp32 or undefined. Throws c10::Error
/// for another dtype or device, and if FBGEMM does not support the processor.
std::function<at::Tensor(const at::Tensor& x)> int8_linear(const at::Tensor& weight, const at::Tensor& bias);

}  // namespace bert::cpu
