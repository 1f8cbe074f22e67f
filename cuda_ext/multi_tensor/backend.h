// The implementations of multi_tensor.h by device.
#pragma once

#include <memory>
#include <vector>

#include "cuda_ext/lr_schedule.h"
#include "cuda_ext/multi_tensor.h"

namespace bert::ops {

/// Serves lists with the traits of the tensors that it was made for.
class MultiTensor::Backend {
 public:
  virtual ~Backend() = default;
  virtual at::Tensor norm(const std::vector<at::Tensor>& tensors) = 0;
  virtual at::Tensor norms(const std::vector<at::Tensor>& tensors) = 0;
  virtual void unscale_(const std::vector<at::Tensor>& tensors, const at::Tensor& inv_scale,
                        const at::Tensor& found_inf) = 0;
};

/// Serves groups with the traits of the tensors that it was made for.
class OptimizerStep::Backend {
 public:
  virtual ~Backend() = default;
  virtual void run(const std::vector<OptimizerTensors>& groups, const std::vector<UpdateOptions>& options,
                   const StepTensors& scalars) = 0;
};

/// The kernels of CUDA. A build without CUDA has none.
struct CudaMultiTensor {
  std::unique_ptr<MultiTensor::Backend> (*list)(const std::vector<at::Tensor>& tensors) = nullptr;
  std::unique_ptr<OptimizerStep::Backend> (*step)(UpdateRule rule,
                                                  const std::vector<OptimizerTensors>& groups) = nullptr;
  void (*learning_rate)(const LrSchedule& schedule, const at::Tensor& applied_steps, const at::Tensor& rate) = nullptr;
};
CudaMultiTensor& cuda_multi_tensor();  // filled by cuda_ext/multi_tensor/cuda.cc when the program starts

/// The element type of a tensor of fp32, fp16 or bf16.
ElementType element_type(const at::Tensor& tensor);

/// True if all tensors are dense and contiguous on a device of this type.
bool dense(const std::vector<at::Tensor>& tensors, at::DeviceType device);
/// True if all tensors are dense() and, except the copies, fp32.
bool dense_fp32(const std::vector<OptimizerTensors>& groups, at::DeviceType device);

/// The gradients of all groups, in their order.
std::vector<at::Tensor> all_grads(const std::vector<OptimizerTensors>& groups);

}  // namespace bert::ops
