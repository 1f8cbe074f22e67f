// The optimizer's arithmetic over lists of tensors: norm, unscaling, LAMB, AdamW, StableAdamW. All scalars are tensors on the
// tensors' device, so a step needs no host synchronisation. Steps in fp32, and lists of fp32, fp16 and bf16, run the
// vector loops of cuda_ext/simd/optim.inc on the CPU and the kernels of multi_tensor_*.cu on CUDA. All others run ATen
// operators.
//
// Note [Tensors that move]
// Every call gets its tensors, and keeps none of them. So gradients that are set to none between steps free their
// memory. The first call makes what a list needs besides its tensors (chunks, device tables, workspaces). These serve
// as long as number, sizes and dtypes of the tensors stay. If only addresses have changed, the new ones are copied to
// the device from pinned memory, in stream order and without a wait. If nothing has changed, a call copies and
// allocates nothing. A CUDA graph holds the addresses of its capture: take one step over the same tensors before the
// capture.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "cuda_ext/lr_schedule.h"
#include "cuda_ext/scalar/optimizer.h"

namespace bert::ops {

// Note [Moments in fp32]
//   m = beta1 m + beta3 g          is computed as  m + (beta3 g - (1 - beta1) m),
//   v = beta2 v + (1 - beta2) g^2  is computed as  v + (1 - beta2) (g^2 - v).
// 0.999 rounded to fp32 is off by 1.3e-8, every step in the same direction: after 100 steps v would be wrong by 1e-6.
// 1 - 0.999 rounded is off by 5e-11.

/// The properties of one tensor that tables and workspaces depend on.
struct TensorTraits {
  int64_t numel = -1;  // -1: undefined
  at::ScalarType dtype = at::ScalarType::Undefined;
  at::Device device = at::kCPU;
  bool dense = false;  // strided and contiguous

  bool operator==(const TensorTraits&) const = default;
};

/// Norms and unscaling of lists of tensors: dense ones of fp32, fp64, fp16 or bf16, at least one, on one device. Throws
/// c10::Error otherwise.
class MultiTensor {
 public:
  MultiTensor();
  ~MultiTensor();
  MultiTensor(MultiTensor&&) noexcept;
  MultiTensor& operator=(MultiTensor&&) noexcept;

  /// The l2 norm of all elements, an fp64 scalar that the next call overwrites. The order of the sum does not depend on
  /// threads or instruction set (CPU; fp64 is summed by ATen there), nor on the model of the GPU. The norm is inf or
  /// NaN exactly when an element is (CPU, except fp64; elsewhere also when the square of an element overflows). Squares
  /// are summed in fp64; those of bf16 on the CPU are summed by the thousand in fp32 (relative error below 1e-7).
  [[nodiscard]] at::Tensor norm(const std::vector<at::Tensor>& tensors);
  /// The l2 norms of the tensors, fp64 [n], which the next call overwrites.
  [[nodiscard]] at::Tensor norms(const std::vector<at::Tensor>& tensors);

  /// tensors *= inv_scale in place; found_inf becomes 1 when an element is inf or NaN, else keeps its value. Both fp32,
  /// 0-dimensional, on the tensors' device; throws c10::Error otherwise.
  void unscale_(const std::vector<at::Tensor>& tensors, const at::Tensor& inv_scale, const at::Tensor& found_inf);

  class Backend;

 private:
  Backend& backend_for(const std::vector<at::Tensor>& tensors);

  std::vector<TensorTraits> traits_;  // the tensors of backend_
  std::unique_ptr<Backend> backend_;
};

/// The tensors of one parameter group; entries of one index belong together and have one shape.
struct OptimizerTensors {
  std::vector<at::Tensor> params;  // fp32 or fp64: the parameters, or the fp32 masters of low-precision ones
  std::vector<at::Tensor>
      copies;  // fp16 or bf16 parameters that receive the rounded masters; undefined where params is the parameter
  std::vector<at::Tensor> grads;       // dtype of params
  std::vector<at::Tensor> exp_avg;     // dtype of params
  std::vector<at::Tensor> exp_avg_sq;  // dtype of params
  std::vector<at::Tensor> ema;         // dtype of params: their moving averages; undefined where there is none
};

/// Inputs and outputs of a step: 0-dimensional tensors on the device of the parameters (c10::Error otherwise).
struct StepTensors {
  at::Tensor lr;         // fp32 or fp64; undefined: UpdateOptions::lr of each group
  at::Tensor inv_scale;  // fp32 or fp64: gradients are multiplied by it; undefined: 1
  at::Tensor found_inf;  // fp32, not 0: skip; undefined: 0
  at::Tensor step;       // int64: counts applied steps
  at::Tensor grad_norm;  // fp32: l2 norm of all gradients times inv_scale
  at::Tensor skipped;    // fp32: 1 when the step was skipped, else 0
};

/// The factor of all gradients in a step with these options: inv_scale times the clipping. `norm` is the l2 norm of all
/// gradients times inv_scale. All three are fp64 scalars.
[[nodiscard]] at::Tensor gradient_multiplier(const UpdateOptions& options, const at::Tensor& inv_scale,
                                             const at::Tensor& norm);

/// Steps over all parameter groups. With N = grad_norm, g = grad times inv_scale and clipped to max_grad_norm, and t =
/// the step, all rules do
///   m = beta1 m + beta3 g;  v = beta2 v + (1 - beta2) g^2;
///   u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay p
/// decoupled off adds weight_decay p to g instead of u, clip_per_tensor clips each tensor by its own norm. LAMB then p -=
/// lr (|p| / |u|) u with norms per tensor, the ratio 1 where one norm is 0. AdamW p -= lr u, rounded once:
/// p (1 - lr weight_decay) would lose the last bits of the decay at every step. StableAdamW p -= lr / max(1, RMS) u, with
/// RMS^2 the mean of g^2 / max(v / (1 - beta2^t), eps^2) over the tensor. Copies are the rounded p. With s =
/// max(1 / t, 1 - ema_decay), averages become (1 - s) ema + s p. The gradients are not written. When N is not finite or
/// found_inf is set, parameters, copies, moments, averages and step keep every bit.
/// Sources: You et al. 2020, in the form of NVIDIA's BERT (recipe: NVLAMB); Loshchilov and Hutter 2019; Wortsman et al.
/// 2023.
class OptimizerStep {
 public:
  explicit OptimizerStep(UpdateRule rule);
  ~OptimizerStep();
  OptimizerStep(OptimizerStep&&) noexcept;
  OptimizerStep& operator=(OptimizerStep&&) noexcept;

  /// One step; options: one entry per group. On CUDA it takes at most three launches, and a copy to the device when
  /// options differ from those of the last call. Throws c10::Error, before anything changes, if groups, options or
  /// scalars do not belong together.
  void run(const std::vector<OptimizerTensors>& groups, const std::vector<UpdateOptions>& options,
           const StepTensors& scalars);

  class Backend;

 private:
  Backend& backend_for(const std::vector<OptimizerTensors>& groups);

  UpdateRule rule_;
  std::vector<TensorTraits> traits_;  // the tensors of backend_, in the order of for_each_tensor()
  std::vector<size_t> group_sizes_;   // likewise
  std::unique_ptr<Backend> backend_;
};

/// rate = schedule(applied_steps), where `applied_steps` (int64) and `rate` (fp32) are 0-dimensional and on one device.
/// No host synchronisation on the CPU, nor on CUDA in a build with CUDA.
void learning_rate_out(const LrSchedule& schedule, const at::Tensor& applied_steps, const at::Tensor& rate);

}  // namespace bert::ops
