#include "cuda_ext/multi_tensor.h"

#include <ATen/ATen.h>

#include "cuda_ext/multi_tensor_cpu.h"

namespace bert::ops {
namespace {

const OptimKernels& host_kernels() { return cpu::optim_kernels(cpu_capability()); }

void write(const at::Tensor& destination, const at::Tensor& value, const at::Tensor& skip) {
  destination.copy_(at::where(skip, destination, value));
}

void write_param(const OptimizerTensors& tensors, size_t i, const at::Tensor& value, const at::Tensor& skip) {
  write(tensors.params[i], value, skip);
  if (tensors.copies[i].defined())
    write(tensors.copies[i], tensors.params[i].to(tensors.copies[i].scalar_type()), skip);
}

/// Tells autograd that the vector kernels wrote to the tensors, as an in-place operator would.
void bump_versions(const OptimizerTensors& tensors) {
  for (const auto* list : {&tensors.params, &tensors.copies}) {
    for (const at::Tensor& tensor : *list) {
      if (tensor.defined() && !tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
    }
  }
}

/// The moments after this step (Note [Moments in fp32]), and sqrt(v / correction2) + eps. 0-dimensional fp64 scalars do
/// not promote fp32 tensors.
struct Moments {
  at::Tensor exp_avg, exp_avg_sq, denominator;
};

Moments next_moments(const OptimizerTensors& tensors, size_t i, const at::Tensor& grad, const StepScalars& scalars,
                     const LambParameters& p) {
  Moments next;
  next.exp_avg = tensors.exp_avg[i] + (grad * p.beta3 - tensors.exp_avg[i] * (1.0 - p.beta1));
  next.exp_avg_sq = tensors.exp_avg_sq[i] + (grad * grad - tensors.exp_avg_sq[i]) * (1.0 - p.beta2);
  next.denominator = (next.exp_avg_sq / scalars.correction2).sqrt() + p.eps;
  return next;
}

void lamb_with_aten(const OptimizerTensors& tensors, const StepScalars& scalars, const LambParameters& p) {
  for (size_t i = 0; i < tensors.params.size(); ++i) {
    const at::Tensor& param = tensors.params[i];
    at::Tensor grad = tensors.grads[i] * scalars.multiplier;
    if (!p.decoupled) grad = grad + param * p.weight_decay;
    const Moments next = next_moments(tensors, i, grad, scalars, p);
    at::Tensor update = next.exp_avg / scalars.correction1 / next.denominator;
    if (p.decoupled) update = update + param * p.weight_decay;
    at::Tensor ratio = scalars.lr;
    if (p.trust_ratio) {
      const at::Tensor param_norm = param.norm().to(at::kDouble), update_norm = update.norm().to(at::kDouble);
      const at::Tensor usable = param_norm.ne(0).logical_and(update_norm.ne(0));
      ratio = scalars.lr * at::where(usable, param_norm / update_norm, at::ones_like(param_norm));
    }
    write_param(tensors, i, param - update * ratio, scalars.skip);
    write(tensors.exp_avg[i], next.exp_avg, scalars.skip);
    write(tensors.exp_avg_sq[i], next.exp_avg_sq, scalars.skip);
  }
}

void adamw_with_aten(const OptimizerTensors& tensors, const StepScalars& scalars, const AdamwParameters& p) {
  const LambParameters moments{.beta1 = p.beta1,
                               .beta2 = p.beta2,
                               .beta3 = 1.0 - p.beta1,
                               .eps = p.eps,
                               .weight_decay = 0.0,
                               .decoupled = true,
                               .trust_ratio = false};
  const at::Tensor step_size = scalars.lr / scalars.correction1, decay = scalars.lr * p.weight_decay;
  for (size_t i = 0; i < tensors.params.size(); ++i) {
    const Moments next = next_moments(tensors, i, tensors.grads[i] * scalars.multiplier, scalars, moments);
    const at::Tensor& param = tensors.params[i];
    write_param(tensors, i, param - (next.exp_avg / next.denominator * step_size + param * decay), scalars.skip);
    write(tensors.exp_avg[i], next.exp_avg, scalars.skip);
    write(tensors.exp_avg_sq[i], next.exp_avg_sq, scalars.skip);
  }
}

}  // namespace

at::Tensor multi_tensor_l2_norm(const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK(!tensors.empty(), "multi_tensor_l2_norm: the list of tensors is empty");
  if (cpu::takes(tensors)) return at::scalar_tensor(cpu::l2_norm(tensors, host_kernels()), at::kDouble);
  std::vector<at::Tensor> norms;
  norms.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    const at::ScalarType accumulate = tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    norms.push_back(at::norm(tensor, 2, accumulate).to(at::kDouble));
  }
  return at::stack(norms).norm();
}

void multi_tensor_unscale_(const std::vector<at::Tensor>& tensors, const at::Tensor& inv_scale,
                           const at::Tensor& found_inf) {
  if (cpu::takes(tensors)) {
    if (!cpu::scale_(tensors, inv_scale.item<float>(), host_kernels())) found_inf.fill_(1.0);
    return;
  }
  for (const at::Tensor& tensor : tensors) {
    if (tensor.scalar_type() == at::kDouble) {  // the operator below has no fp64 on the CPU
      found_inf.masked_fill_(tensor.isfinite().all().logical_not(), 1.0);
      tensor.mul_(inv_scale);
    } else {
      at::_amp_foreach_non_finite_check_and_unscale_(tensor, const_cast<at::Tensor&>(found_inf), inv_scale);
    }
  }
}

void multi_tensor_lamb(const OptimizerTensors& tensors, const StepScalars& scalars, const LambParameters& parameters) {
  at::NoGradGuard no_grad;
  if (cpu::takes(tensors)) {
    cpu::lamb(tensors, scalars, parameters, host_kernels());
    bump_versions(tensors);
  } else {
    lamb_with_aten(tensors, scalars, parameters);
  }
}

void multi_tensor_adamw(const OptimizerTensors& tensors, const StepScalars& scalars,
                        const AdamwParameters& parameters) {
  at::NoGradGuard no_grad;
  if (cpu::takes(tensors)) {
    cpu::adamw(tensors, scalars, parameters, host_kernels());
    bump_versions(tensors);
  } else {
    adamw_with_aten(tensors, scalars, parameters);
  }
}

}  // namespace bert::ops
