// multi_tensor.h on the CPU: lists cut into chunks that threads take one after another; sums are added in the order of
// the chunks.
#pragma once

#include <memory>
#include <vector>

#include "cuda_ext/multi_tensor/backend.h"
#include "cuda_ext/simd/capability.h"
#include "cuda_ext/simd/optim.h"

namespace bert::ops::cpu {

/// The implementations for dense() lists of fp32, fp16 and bf16 and for dense_fp32() groups. They serve other tensors
/// with the same traits too.
[[nodiscard]] std::unique_ptr<MultiTensor::Backend> make_list(
    const std::vector<at::Tensor>& tensors, const OptimKernels& kernels = optim_kernels(cpu_capability()));
[[nodiscard]] std::unique_ptr<OptimizerStep::Backend> make_step(
    UpdateRule rule, const std::vector<OptimizerTensors>& groups,
    const OptimKernels& kernels = optim_kernels(cpu_capability()));

}  // namespace bert::ops::cpu
