// The CPU side of multi_tensor.h: fp32 lists cut into chunks that threads take one after another, sums added in the
// order of the chunks.
#pragma once

#include <memory>
#include <vector>

#include "cuda_ext/cpu_capability.h"
#include "cuda_ext/cpu_optim.h"
#include "cuda_ext/multi_tensor_backend.h"

namespace bert::ops::cpu {

/// Whether all tensors are fp32, dense, contiguous and on the CPU.
[[nodiscard]] bool takes(const std::vector<at::Tensor>& tensors);

/// The implementations for tensors that takes() and dense_fp32() accept, and for others of their traits.
[[nodiscard]] std::unique_ptr<MultiTensor::Backend> make_list(
    const std::vector<at::Tensor>& tensors, const OptimKernels& kernels = optim_kernels(cpu_capability()));
[[nodiscard]] std::unique_ptr<OptimizerStep::Backend> make_step(
    UpdateRule rule, const std::vector<OptimizerTensors>& groups,
    const OptimKernels& kernels = optim_kernels(cpu_capability()));

}  // namespace bert::ops::cpu
