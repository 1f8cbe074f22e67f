// The CPU side of multi_tensor.h: fp32 lists cut into chunks, chunks dealt to threads, sums added in the order of the
// chunks.
#pragma once

#include <vector>

#include "cuda_ext/cpu_capability.h"
#include "cuda_ext/cpu_optim.h"
#include "cuda_ext/multi_tensor.h"

namespace bert::ops::cpu {

/// The kernels for an instruction set that this CPU has.
[[nodiscard]] const OptimKernels& optim_kernels(CpuCapability capability);

/// Whether all tensors are fp32, dense, contiguous and on the CPU.
[[nodiscard]] bool takes(const std::vector<at::Tensor>& tensors);
[[nodiscard]] bool takes(const OptimizerTensors& tensors);

/// The functions of multi_tensor.h for tensors that takes() accepts.
[[nodiscard]] double l2_norm(const std::vector<at::Tensor>& tensors, const OptimKernels& kernels);
[[nodiscard]] bool scale_(const std::vector<at::Tensor>& tensors, float factor,
                          const OptimKernels& kernels);  // false: inf or NaN
void lamb(const OptimizerTensors& tensors, const StepScalars& scalars, const LambParameters& parameters,
          const OptimKernels& kernels);
void adamw(const OptimizerTensors& tensors, const StepScalars& scalars, const AdamwParameters& parameters,
           const OptimKernels& kernels);

}  // namespace bert::ops::cpu
