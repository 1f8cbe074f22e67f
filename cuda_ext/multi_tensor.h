// The optimizer's arithmetic over lists of tensors: norm, unscaling, LAMB, AdamW. All scalars are tensors on the
// tensors' device, so a step needs no host synchronisation. What a list needs besides its tensors (chunks, device
// tables, workspaces) is made once, when the list is: calls allocate nothing. fp32 on the CPU takes the vector loops of
// cpu_simd_optim.inc, on CUDA the kernels of multi_tensor_*.cu; anything else takes ATen operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "cuda_ext/multi_tensor_table.h"

namespace bert::ops {

// Note [Moments in fp32]
// m = beta1 m + beta3 g is computed as m + (beta3 g - (1 - beta1) m), and v = beta2 v + (1 - beta2) g^2 as v + (1 -
// beta2) (g^2 - v). 0.999 rounded to fp32 is off by 1.3e-8, every step in the same direction: after 100 steps v would
// be wrong by 1e-6. 1 - 0.999 rounded is off by 5e-11.

/// A list of tensors on one device for norms and unscaling.
class TensorList {
 public:
  /// Dense tensors of floating types. They are held; their memory must stay where it is (see holds()).
  explicit TensorList(std::vector<at::Tensor> tensors);
  ~TensorList();
  TensorList(TensorList&&) noexcept;
  TensorList& operator=(TensorList&&) noexcept;

  /// Whether the list is of these tensors and their memory has not moved since. Compares on the host.
  [[nodiscard]] bool holds(const std::vector<at::Tensor>& tensors) const;

  /// The l2 norm of all elements, an fp64 scalar that the next call overwrites. Its order depends on neither
  /// threads nor instruction set, nor on the model of the GPU. inf or NaN exactly when an element is (CPU, fp32;
  /// elsewhere also when the square of an element overflows).
  [[nodiscard]] const at::Tensor& norm();
  /// The l2 norms of the tensors, fp64 [n], which the next call overwrites.
  [[nodiscard]] const at::Tensor& norms();

  /// tensors *= inv_scale in place; found_inf (fp32 scalar) becomes 1 when an element is inf or NaN, else keeps its
  /// value. inv_scale: fp32 scalar.
  void unscale_(const at::Tensor& inv_scale, const at::Tensor& found_inf);

  class Backend;

 private:
  std::vector<at::Tensor> tensors_;
  std::vector<const void*> places_;
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
};

/// What a step reads and what it says: 0-dimensional, on the device of the tensors.
struct StepTensors {
  at::Tensor lr;         // fp32 or fp64; undefined: UpdateOptions::lr of each group
  at::Tensor inv_scale;  // fp32 or fp64: gradients are multiplied by it; undefined: 1
  at::Tensor found_inf;  // fp32, not 0: skip; undefined: 0
  at::Tensor step;       // int64: counts applied steps
  at::Tensor grad_norm;  // fp32: l2 norm of all gradients times inv_scale
  at::Tensor skipped;    // fp32: 1 when the step was skipped, else 0
};

/// Steps over all parameter groups. With N = grad_norm, g = grad times inv_scale and clipped to max_grad_norm, and t =
/// the step, both rules do
///   m = beta1 m + beta3 g;  v = beta2 v + (1 - beta2) g^2;
///   u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay p
/// decoupled off adds weight_decay p to g instead of u, eps_inside_sqrt divides by sqrt(v / (1 - beta2^t) + eps),
/// clip_per_tensor clips each tensor by its own norm. LAMB then p -= lr (|p| / |u|) u with norms per tensor, the ratio
/// within its bounds and 1 where one norm is 0. AdamW p -= lr u, rounded once: p (1 - lr weight_decay) would lose the
/// last bits of the decay at every step. Copies are the rounded p. The gradients are not written. When N is not finite
/// or found_inf is set, parameters, copies, moments and step keep every bit.
/// Sources: You et al. 2020, in the form of NVIDIA's BERT (recipe: NVLAMB); Loshchilov and Hutter 2019.
class OptimizerStep {
 public:
  OptimizerStep(UpdateRule rule, std::vector<OptimizerTensors> groups);
  ~OptimizerStep();
  OptimizerStep(OptimizerStep&&) noexcept;
  OptimizerStep& operator=(OptimizerStep&&) noexcept;

  /// Whether the steps are over these tensors and their memory has not moved since. Compares on the host.
  [[nodiscard]] bool holds(const std::vector<OptimizerTensors>& groups) const;

  /// One step; options: one entry per group. On CUDA at most three launches; a copy to the device when options differ
  /// from the last call's.
  void run(const std::vector<UpdateOptions>& options, const StepTensors& scalars);

  class Backend;

 private:
  UpdateRule rule_;
  std::vector<OptimizerTensors> groups_;
  std::vector<const void*> places_;
  std::unique_ptr<Backend> backend_;
};

}  // namespace bert::ops
