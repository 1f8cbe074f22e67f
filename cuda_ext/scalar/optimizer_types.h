// Plain data for the optimizer's loops on the CPU and its kernels on CUDA. This file has no includes, because the loops
// are compiled once for each instruction set.
#pragma once

namespace bert {

enum class ElementType : signed char { kFloat, kHalf, kBFloat16 };
enum class CopyType : signed char { kNone, kHalf, kBFloat16 };

/// The numbers of one step. Formulas: cuda_ext/multi_tensor.h.
struct OptimScalars {
  double lr;
  float multiplier, inv_correction1, inv_correction2;  // reciprocals, because divisions would slow the kernels down
  float one_minus_beta1, one_minus_beta2, beta3, weight_decay, eps;
  float ema_share;  // of the new parameter in its moving average
  bool decoupled;
};

}  // namespace bert
