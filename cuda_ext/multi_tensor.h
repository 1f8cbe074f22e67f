// The optimizer's arithmetic over lists of tensors: norm, unscaling, LAMB, AdamW. All scalars are tensors on the
// tensors' device, so a step needs no host synchronisation. fp32 on the CPU takes the vector kernels of
// cpu_simd_optim.inc; anything else takes ATen operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace bert::ops {

// Note [Moments in fp32]
// m = beta1 m + beta3 g is computed as m + (beta3 g - (1 - beta1) m), and v = beta2 v + (1 - beta2) g^2 as v + (1 -
// beta2) (g^2 - v). 0.999 rounded to fp32 is off by 1.3e-8, every step in the same direction: after 100 steps v would
// be wrong by 1e-6. 1 - 0.999 rounded is off by 5e-11.

/// The tensors of one parameter group; entries of one index belong together and have one shape.
struct OptimizerTensors {
  std::vector<at::Tensor> params;  // fp32 or fp64: the parameters, or the fp32 masters of low-precision ones
  std::vector<at::Tensor>
      copies;  // fp16 or bf16 parameters that receive the rounded masters; undefined where params is the parameter
  std::vector<at::Tensor> grads;       // dtype of params
  std::vector<at::Tensor> exp_avg;     // dtype of params
  std::vector<at::Tensor> exp_avg_sq;  // dtype of params
};

/// Scalars of one step: 0-dimensional, on the device of the tensors. `skip` leaves every bit as it is, whatever the
/// others hold.
struct StepScalars {
  at::Tensor lr;                        // fp64
  at::Tensor multiplier;                // fp64: gradients are multiplied by it (inverse loss scale and clipping)
  at::Tensor correction1, correction2;  // fp64: 1 - beta^step, or 1 without bias correction
  at::Tensor skip;                      // bool
};

struct LambParameters {
  double beta1, beta2;
  double beta3;  // weight of the new gradient in exp_avg: 1 - beta1 with gradient averaging, else 1
  double eps, weight_decay;
  bool decoupled;    // decay added to the update (true) or to the gradient before the moments (false)
  bool trust_ratio;  // false: the ratio is 1
};

struct AdamwParameters {
  double beta1, beta2, eps, weight_decay;
};

/// l2 norm of all elements of all tensors, fp64 scalar, summed in an order that depends on neither threads nor
/// instruction set. inf or NaN exactly when an element is (CPU, fp32; elsewhere also when a tensor's norm overflows its
/// accumulation type).
[[nodiscard]] at::Tensor multi_tensor_l2_norm(const std::vector<at::Tensor>& tensors);

/// tensors *= inv_scale in place; found_inf (fp32 scalar) becomes 1 when an element is inf or NaN, else keeps its
/// value.
void multi_tensor_unscale_(const std::vector<at::Tensor>& tensors, const at::Tensor& inv_scale,
                           const at::Tensor& found_inf);

/// One LAMB update. g = multiplier * grad; m = beta1 m + beta3 g; v = beta2 v + (1 - beta2) g^2;
/// u = (m / correction1) / (sqrt(v / correction2) + eps) + weight_decay p; p -= lr (|p| / |u|) u, ratio 1 where a norm
/// is 0. The gradients are not written. Source: You et al. 2020, in the form of NVIDIA's BERT (recipe: NVLAMB).
void multi_tensor_lamb(const OptimizerTensors& tensors, const StepScalars& scalars, const LambParameters& parameters);

/// One AdamW update. g = multiplier * grad; moments as above with beta3 = 1 - beta1;
/// p -= lr (m / correction1) / (sqrt(v / correction2) + eps) + lr weight_decay p, rounded once: p (1 - lr weight_decay)
/// would lose the last bits of the decay at every step. Source: Loshchilov and Hutter 2019.
void multi_tensor_adamw(const OptimizerTensors& tensors, const StepScalars& scalars, const AdamwParameters& parameters);

}  // namespace bert::ops
