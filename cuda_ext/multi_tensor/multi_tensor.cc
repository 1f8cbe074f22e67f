#include "cuda_ext/multi_tensor.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include "cuda_ext/multi_tensor/backend.h"
#include "cuda_ext/multi_tensor/cpu.h"

namespace bert::ops {
namespace {

/// clip_coefficient() on tensors.
at::Tensor clip(const UpdateOptions& options, const at::Tensor& norm) {
  if (options.max_grad_norm <= 0.0) return at::ones_like(norm);
  return clip_ratio(options, norm).clamp_max(1.0);
}

/// Lists by ATen's operators, for any dtype, layout and device.
class AtenList : public MultiTensor::Backend {
 public:
  at::Tensor norm(const std::vector<at::Tensor>& tensors) override { return norms(tensors).norm(); }

  at::Tensor norms(const std::vector<at::Tensor>& tensors) override {
    std::vector<at::Tensor> norms;
    norms.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) {
      const at::ScalarType accumulate = tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
      norms.push_back(at::norm(tensor, 2, accumulate).to(at::kDouble));
    }
    return at::stack(norms);
  }

  void unscale_(const std::vector<at::Tensor>& tensors, const at::Tensor& inv_scale,
                const at::Tensor& found_inf) override {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.scalar_type() == at::kDouble) {  // the operator below has no fp64 on the CPU
        found_inf.masked_fill_(tensor.isfinite().all().logical_not(), 1.0);
        tensor.mul_(inv_scale);
      } else {
        at::_amp_foreach_non_finite_check_and_unscale_(tensor, const_cast<at::Tensor&>(found_inf), inv_scale);
      }
    }
  }
};

/// Steps by ATen's operators. 0-dimensional fp64 scalars do not promote fp32 tensors.
class AtenStep : public OptimizerStep::Backend {
 public:
  explicit AtenStep(UpdateRule rule) : rule_(rule) {}

  void run(const std::vector<OptimizerTensors>& groups, const std::vector<UpdateOptions>& options,
           const StepTensors& scalars) override {
    const auto number = scalars.grad_norm.options().dtype(at::kDouble);
    const at::Tensor inv_scale = scalars.inv_scale.defined() ? scalars.inv_scale.to(at::kDouble) : at::ones({}, number);
    const at::Tensor norm = AtenList().norm(all_grads(groups)) * inv_scale;
    scalars.grad_norm.copy_(norm);
    at::Tensor skip = scalars.grad_norm.isfinite().logical_not_();
    if (scalars.found_inf.defined()) skip = skip.logical_or(scalars.found_inf.ne(0));
    scalars.skipped.copy_(skip);
    scalars.step.add_(skip.logical_not());
    const at::Tensor steps = scalars.step.to(at::kDouble);
    for (size_t g = 0; g < groups.size(); ++g) {
      const UpdateOptions& o = options[g];
      const at::Tensor lr = scalars.lr.defined() ? scalars.lr.to(at::kDouble) : at::full({}, o.lr, number);
      Numbers numbers{.lr = lr * o.lr_scale,
                      .multiplier = gradient_multiplier(o, inv_scale, norm),
                      .correction1 = at::ones({}, number),
                      .correction2 = at::ones({}, number),
                      .ema_share = steps.reciprocal().clamp_min(1.0 - o.ema_decay),
                      .skip = skip};
      if (o.bias_correction) {
        numbers.correction1 = 1.0 - at::pow(o.beta1, steps);
        numbers.correction2 = 1.0 - at::pow(o.beta2, steps);
      }
      for (size_t i = 0; i < groups[g].params.size(); ++i) update(groups[g], i, o, numbers);
    }
  }

 private:
  struct Numbers {
    at::Tensor lr, multiplier, correction1, correction2, ema_share;  // fp64 scalars
    at::Tensor skip;                                                 // bool scalar
  };

  static void write(const at::Tensor& destination, const at::Tensor& value, const at::Tensor& skip) {
    destination.copy_(at::where(skip, destination, value));
  }

  void update(const OptimizerTensors& tensors, size_t i, const UpdateOptions& o, const Numbers& n) const {
    const bool lamb = rule_ == UpdateRule::kLamb;
    const at::Tensor& param = tensors.params[i];
    at::Tensor multiplier = n.multiplier;
    if (o.clip_per_tensor) multiplier = multiplier * clip(o, tensors.grads[i].norm().to(at::kDouble) * multiplier);
    at::Tensor grad = tensors.grads[i] * multiplier;
    if (!o.decoupled) grad = grad + param * o.weight_decay;
    const at::Tensor exp_avg = tensors.exp_avg[i] + (grad * o.beta3 - tensors.exp_avg[i] * (1.0 - o.beta1));
    const at::Tensor exp_avg_sq = tensors.exp_avg_sq[i] + (grad * grad - tensors.exp_avg_sq[i]) * (1.0 - o.beta2);
    const at::Tensor corrected = exp_avg_sq / n.correction2;
    at::Tensor step = exp_avg / n.correction1 / (corrected.sqrt() + o.eps);
    if (o.decoupled) step = step + param * o.weight_decay;
    at::Tensor rate = n.lr;
    if (lamb && o.trust_ratio) {
      const at::Tensor param_norm = param.norm().to(at::kDouble), step_norm = step.norm().to(at::kDouble);
      const at::Tensor usable = param_norm.ne(0).logical_and(step_norm.ne(0));
      rate = n.lr * at::where(usable, param_norm / step_norm, at::ones_like(param_norm));
    }
    if (rule_ == UpdateRule::kStableAdamw) {
      const at::Tensor squares = grad.square() / corrected.clamp_min(o.eps * o.eps);
      rate = n.lr / squares.mean(at::kDouble).clamp_min(1.0).sqrt();
    }
    write(param, param - step * rate, n.skip);
    if (tensors.copies[i].defined()) write(tensors.copies[i], param.to(tensors.copies[i].scalar_type()), n.skip);
    if (const at::Tensor& ema = tensors.ema[i]; ema.defined()) {
      write(ema, at::lerp(ema, param, n.ema_share.to(ema.scalar_type())), n.skip);
    }
    write(tensors.exp_avg[i], exp_avg, n.skip);
    write(tensors.exp_avg_sq[i], exp_avg_sq, n.skip);
  }

  UpdateRule rule_;
};

/// Calls visit(tensor) for every tensor of every group, including undefined copies and averages.
template <class Visit>
void for_each_tensor(const std::vector<OptimizerTensors>& groups, const Visit& visit) {
  for (const OptimizerTensors& group : groups) {
    for (const auto* list :
         {&group.params, &group.copies, &group.grads, &group.exp_avg, &group.exp_avg_sq, &group.ema}) {
      for (const at::Tensor& tensor : *list) visit(tensor);
    }
  }
}

TensorTraits traits_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {.numel = tensor.numel(),
          .dtype = tensor.scalar_type(),
          .device = tensor.device(),
          .dense = tensor.layout() == at::kStrided && tensor.is_contiguous()};
}

bool half_precision(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
}

bool full_precision(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble;
}

/// Backends read scalars in place, so scalars that they cannot read are refused here.
void check_scalar(const char* where, const char* name, const at::Tensor& scalar,
                  std::initializer_list<at::ScalarType> dtypes, at::Device device) {
  const auto expected = [&] {
    std::string words;
    for (const at::ScalarType dtype : dtypes) words += c10::str(words.empty() ? "" : " or ", dtype);
    return c10::str(", expected a 0-dimensional tensor of ", words, " on ", device, ", the device of the tensors");
  };
  TORCH_CHECK_VALUE(scalar.defined(), where, ": ", name, " is undefined", expected());
  const bool right_dtype = std::find(dtypes.begin(), dtypes.end(), scalar.scalar_type()) != dtypes.end();
  TORCH_CHECK_VALUE(right_dtype && scalar.dim() == 0 && scalar.device() == device && scalar.layout() == at::kStrided,
                    where, ": ", name, " is ", scalar.scalar_type(), " ", scalar.sizes(), " on ", scalar.device(),
                    expected());
}

void check_scalars(const StepTensors& scalars, at::Device device) {
  const auto check = [&](const char* name, const at::Tensor& scalar, std::initializer_list<at::ScalarType> dtypes) {
    check_scalar("OptimizerStep::run", name, scalar, dtypes, device);
  };
  if (scalars.lr.defined()) check("lr", scalars.lr, {at::kFloat, at::kDouble});
  if (scalars.inv_scale.defined()) check("inv_scale", scalars.inv_scale, {at::kFloat, at::kDouble});
  if (scalars.found_inf.defined()) check("found_inf", scalars.found_inf, {at::kFloat});
  check("step", scalars.step, {at::kLong});
  check("grad_norm", scalars.grad_norm, {at::kFloat});
  check("skipped", scalars.skipped, {at::kFloat});
}

/// The first parameter. All tensors must be on its device.
const at::Tensor& first_param(const std::vector<OptimizerTensors>& groups) {
  for (const OptimizerTensors& group : groups) {
    if (!group.params.empty()) return group.params.front();
  }
  C10_THROW_ERROR(ValueError, "OptimizerStep::run: the groups have no tensors");
}

/// Backends read tensors in place, so a tensor of another dtype would be misread.
void check_dtypes(const OptimizerTensors& group, size_t i) {
  const at::Tensor &param = group.params[i], &copy = group.copies[i];
  TORCH_CHECK_VALUE(full_precision(param), "OptimizerStep::run: got a param of ", param.scalar_type(),
                    ", expected Float or Double (the masters of low-precision weights, which are their copies)");
  TORCH_CHECK_VALUE(!copy.defined() || half_precision(copy), "OptimizerStep::run: got a copy of ", copy.scalar_type(),
                    ", expected Half or BFloat16");
  for (const at::Tensor* other : {&group.grads[i], &group.exp_avg[i], &group.exp_avg_sq[i], &group.ema[i]}) {
    TORCH_CHECK_VALUE(!other->defined() || other->scalar_type() == param.scalar_type(),
                      "OptimizerStep::run: with a param of ", param.scalar_type(),
                      " comes a gradient, moment or average of ", other->scalar_type(), ", expected ",
                      param.scalar_type());
  }
}

void check_groups(const std::vector<OptimizerTensors>& groups) {
  const at::Device device = first_param(groups).device();
  for (const OptimizerTensors& group : groups) {
    const size_t size = group.params.size();
    TORCH_CHECK_VALUE(group.copies.size() == size && group.grads.size() == size && group.exp_avg.size() == size &&
                          group.exp_avg_sq.size() == size && group.ema.size() == size,
                      "OptimizerStep::run: a group of ", size, " params has ", group.copies.size(), " copies, ",
                      group.grads.size(), " grads, ", group.exp_avg.size(), " exp_avg, ", group.exp_avg_sq.size(),
                      " exp_avg_sq and ", group.ema.size(), " ema, expected as many of each");
    for (size_t i = 0; i < size; ++i) {
      const at::Tensor &param = group.params[i], &copy = group.copies[i], &ema = group.ema[i];
      for (const at::Tensor* other : {&group.grads[i], &group.exp_avg[i], &group.exp_avg_sq[i], &copy, &ema}) {
        if ((other == &copy || other == &ema) && !other->defined()) continue;
        TORCH_CHECK_VALUE(other->sizes() == param.sizes() && other->device() == device,
                          "OptimizerStep::run: with a param of ", param.sizes(), " on ", device,
                          " comes a gradient, moment, copy or average of ", other->sizes(), " on ", other->device());
      }
      check_dtypes(group, i);
    }
  }
}

/// Tells autograd that the loops wrote to the tensors, as an in-place operator would.
void bump_versions(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && !tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace

CudaMultiTensor& cuda_multi_tensor() {
  static CudaMultiTensor instance;
  return instance;
}

ElementType element_type(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kHalf) return ElementType::kHalf;
  return tensor.scalar_type() == at::kBFloat16 ? ElementType::kBFloat16 : ElementType::kFloat;
}

bool dense(const std::vector<at::Tensor>& tensors, at::DeviceType device) {
  return std::all_of(tensors.begin(), tensors.end(), [device](const at::Tensor& tensor) {
    return tensor.device().type() == device && tensor.layout() == at::kStrided && tensor.is_contiguous();
  });
}

bool dense_fp32(const std::vector<OptimizerTensors>& groups, at::DeviceType device) {
  const auto all = [](const std::vector<at::Tensor>& list, const auto& fits) {
    return std::all_of(list.begin(), list.end(), fits);
  };
  const auto fp32 = [device](const at::Tensor& tensor) {
    return dense({tensor}, device) && tensor.scalar_type() == at::kFloat;
  };
  const auto fp32_or_none = [&](const at::Tensor& tensor) { return !tensor.defined() || fp32(tensor); };
  const auto half_or_none = [device](const at::Tensor& tensor) {
    return !tensor.defined() || (dense({tensor}, device) && half_precision(tensor));
  };
  return std::all_of(groups.begin(), groups.end(), [&](const OptimizerTensors& group) {
    return all(group.params, fp32) && all(group.grads, fp32) && all(group.exp_avg, fp32) &&
           all(group.exp_avg_sq, fp32) && all(group.ema, fp32_or_none) && all(group.copies, half_or_none);
  });
}

std::vector<at::Tensor> all_grads(const std::vector<OptimizerTensors>& groups) {
  std::vector<at::Tensor> grads;
  for (const OptimizerTensors& group : groups) grads.insert(grads.end(), group.grads.begin(), group.grads.end());
  return grads;
}

at::Tensor gradient_multiplier(const UpdateOptions& options, const at::Tensor& inv_scale, const at::Tensor& norm) {
  return options.clip_per_tensor ? inv_scale : inv_scale * clip(options, norm);
}

MultiTensor::MultiTensor() = default;
MultiTensor::~MultiTensor() = default;
MultiTensor::MultiTensor(MultiTensor&&) noexcept = default;
MultiTensor& MultiTensor::operator=(MultiTensor&&) noexcept = default;

MultiTensor::Backend& MultiTensor::backend_for(const std::vector<at::Tensor>& tensors) {
  if (backend_ &&
      std::equal(tensors.begin(), tensors.end(), traits_.begin(), traits_.end(),
                 [](const at::Tensor& tensor, const TensorTraits& traits) { return traits_of(tensor) == traits; })) {
    return *backend_;
  }
  backend_.reset();
  traits_.clear();
  TORCH_CHECK_VALUE(!tensors.empty(), "MultiTensor: the list of tensors is empty");
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK_VALUE((half_precision(tensor) || full_precision(tensor)) && tensor.device() == tensors.front().device(),
                      "MultiTensor: got ", tensor.scalar_type(), " on ", tensor.device(),
                      ", expected Float, Double, Half or BFloat16 on ", tensors.front().device(),
                      ", the first tensor's device");
    traits_.push_back(traits_of(tensor));
  }
  const bool has_kernel = std::none_of(tensors.begin(), tensors.end(),
                                       [](const at::Tensor& tensor) { return tensor.scalar_type() == at::kDouble; });
  if (has_kernel && dense(tensors, at::kCPU)) {
    backend_ = cpu::make_list(tensors);
  } else if (cuda_multi_tensor().list != nullptr && has_kernel && dense(tensors, at::kCUDA)) {
    backend_ = cuda_multi_tensor().list(tensors);
  } else {
    backend_ = std::make_unique<AtenList>();
  }
  return *backend_;
}

at::Tensor MultiTensor::norm(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  return backend_for(tensors).norm(tensors);
}

at::Tensor MultiTensor::norms(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  return backend_for(tensors).norms(tensors);
}

void MultiTensor::unscale_(const std::vector<at::Tensor>& tensors, const at::Tensor& inv_scale,
                           const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  Backend& backend = backend_for(tensors);
  check_scalar("MultiTensor::unscale_", "inv_scale", inv_scale, {at::kFloat}, tensors.front().device());
  check_scalar("MultiTensor::unscale_", "found_inf", found_inf, {at::kFloat}, tensors.front().device());
  backend.unscale_(tensors, inv_scale, found_inf);
  bump_versions(tensors);
}

OptimizerStep::OptimizerStep(UpdateRule rule) : rule_(rule) {}
OptimizerStep::~OptimizerStep() = default;
OptimizerStep::OptimizerStep(OptimizerStep&&) noexcept = default;
OptimizerStep& OptimizerStep::operator=(OptimizerStep&&) noexcept = default;

OptimizerStep::Backend& OptimizerStep::backend_for(const std::vector<OptimizerTensors>& groups) {
  const auto same_size = [](const OptimizerTensors& group, size_t size) { return group.params.size() == size; };
  bool same = backend_ && std::equal(groups.begin(), groups.end(), group_sizes_.begin(), group_sizes_.end(), same_size);
  if (same) {
    auto traits = traits_.begin();
    for_each_tensor(groups, [&](const at::Tensor& tensor) { same = traits_of(tensor) == *traits++ && same; });
  }
  if (same) return *backend_;
  backend_.reset();
  traits_.clear();
  group_sizes_.clear();
  for (const OptimizerTensors& group : groups) group_sizes_.push_back(group.params.size());
  for_each_tensor(groups, [&](const at::Tensor& tensor) { traits_.push_back(traits_of(tensor)); });
  if (dense_fp32(groups, at::kCPU)) {
    backend_ = cpu::make_step(rule_, groups);
  } else if (cuda_multi_tensor().step != nullptr && dense_fp32(groups, at::kCUDA)) {
    backend_ = cuda_multi_tensor().step(rule_, groups);
  } else {
    backend_ = std::make_unique<AtenStep>(rule_);
  }
  return *backend_;
}

void OptimizerStep::run(const std::vector<OptimizerTensors>& groups, const std::vector<UpdateOptions>& options,
                        const StepTensors& scalars) {
  TORCH_CHECK_VALUE(options.size() == groups.size(), "OptimizerStep::run: got options for ", options.size(),
                    " groups, expected ", groups.size());
  check_groups(groups);
  check_scalars(scalars, first_param(groups).device());
  const at::NoGradGuard no_grad;
  backend_for(groups).run(groups, options, scalars);
  for (const OptimizerTensors& group : groups) {
    bump_versions(group.params);
    bump_versions(group.copies);
  }
}

void learning_rate_out(const LrSchedule& schedule, const at::Tensor& applied_steps, const at::Tensor& rate) {
  const auto on_cuda = cuda_multi_tensor().learning_rate;
  if (applied_steps.is_cpu()) {
    *rate.mutable_data_ptr<float>() = static_cast<float>(schedule(*applied_steps.const_data_ptr<int64_t>()));
  } else if (applied_steps.is_cuda() && on_cuda != nullptr) {
    on_cuda(schedule, applied_steps, rate);
  } else {
    rate.fill_(schedule(applied_steps.item<int64_t>()));
  }
}

}  // namespace bert::ops
