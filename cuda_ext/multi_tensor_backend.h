// The implementations of multi_tensor.h by device.
#pragma once

#include <vector>

#include "cuda_ext/lr_schedule.h"
#include "cuda_ext/multi_tensor.h"

namespace bert::ops {

class TensorList::Backend {
 public:
  virtual ~Backend() = default;
  virtual const at::Tensor& norm() = 0;
  virtual const at::Tensor& norms() = 0;
  virtual void unscale_(const at::Tensor& inv_scale, const at::Tensor& found_inf) = 0;
};

class OptimizerStep::Backend {
 public:
  virtual ~Backend() = default;
  virtual void run(const std::vector<UpdateOptions>& options, const StepTensors& scalars) = 0;
};

/// The kernels of CUDA. A build without CUDA has none.
struct CudaMultiTensor {
  std::unique_ptr<TensorList::Backend> (*list)(const std::vector<at::Tensor>& tensors) = nullptr;
  std::unique_ptr<OptimizerStep::Backend> (*step)(UpdateRule rule,
                                                  const std::vector<OptimizerTensors>& groups) = nullptr;
  void (*learning_rate)(const LrSchedule& schedule, const at::Tensor& applied_steps, const at::Tensor& rate) = nullptr;
};
CudaMultiTensor& cuda_multi_tensor();  // multi_tensor_cuda.cc registers itself here when the program starts

/// Whether all tensors are dense and contiguous on a device of this type.
bool dense(const std::vector<at::Tensor>& tensors, at::DeviceType device);
/// dense(), and fp32, but for the copies.
bool dense_fp32(const std::vector<OptimizerTensors>& groups, at::DeviceType device);

}  // namespace bert::ops
