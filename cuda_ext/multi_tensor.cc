#include "cuda_ext/multi_tensor.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "cuda_ext/multi_tensor_backend.h"
#include "cuda_ext/multi_tensor_cpu.h"
#include "cuda_ext/reference_ops.h"

namespace bert::ops {
namespace {

/// The lists by ATen's operators, in any dtype, layout and place.
class AtenList : public TensorList::Backend {
 public:
  explicit AtenList(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {}

  const at::Tensor& norm() override { return norm_ = norms().norm(); }

  const at::Tensor& norms() override {
    std::vector<at::Tensor> norms;
    norms.reserve(tensors_.size());
    for (const at::Tensor& tensor : tensors_) {
      const at::ScalarType accumulate = tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
      norms.push_back(at::norm(tensor, 2, accumulate).to(at::kDouble));
    }
    return norms_ = at::stack(norms);
  }

  void unscale_(const at::Tensor& inv_scale, const at::Tensor& found_inf) override {
    for (const at::Tensor& tensor : tensors_) {
      if (tensor.scalar_type() == at::kDouble) {  // the operator below has no fp64 on the CPU
        found_inf.masked_fill_(tensor.isfinite().all().logical_not(), 1.0);
        tensor.mul_(inv_scale);
      } else {
        at::_amp_foreach_non_finite_check_and_unscale_(tensor, const_cast<at::Tensor&>(found_inf), inv_scale);
      }
    }
  }

 private:
  std::vector<at::Tensor> tensors_;
  at::Tensor norm_, norms_;
};

/// Steps by ATen's operators. 0-dimensional fp64 scalars do not promote fp32 tensors.
class AtenStep : public OptimizerStep::Backend {
 public:
  AtenStep(UpdateRule rule, const std::vector<OptimizerTensors>& groups)
      : rule_(rule), groups_(groups), grads_(all_grads(groups)) {}

  void run(const std::vector<UpdateOptions>& options, const StepTensors& scalars) override {
    const auto number = scalars.grad_norm.options().dtype(at::kDouble);
    const at::Tensor inv_scale = scalars.inv_scale.defined() ? scalars.inv_scale.to(at::kDouble) : at::ones({}, number);
    const at::Tensor norm = grads_.norm() * inv_scale;
    scalars.grad_norm.copy_(norm);
    at::Tensor skip = scalars.grad_norm.isfinite().logical_not_();
    if (scalars.found_inf.defined()) skip = skip.logical_or(scalars.found_inf.ne(0));
    scalars.skipped.copy_(skip);
    scalars.step.add_(skip.logical_not());
    const at::Tensor steps = scalars.step.to(at::kDouble);
    for (size_t g = 0; g < groups_.size(); ++g) {
      const UpdateOptions& o = options[g];
      const at::Tensor lr = scalars.lr.defined() ? scalars.lr.to(at::kDouble) : at::full({}, o.lr, number);
      Numbers numbers{.lr = lr * o.lr_scale,
                      .multiplier = o.clip_per_tensor ? inv_scale : inv_scale * clip(norm, o),
                      .correction1 = at::ones({}, number),
                      .correction2 = at::ones({}, number),
                      .skip = skip};
      if (o.bias_correction) {
        numbers.correction1 = 1.0 - at::pow(o.beta1, steps);
        numbers.correction2 = 1.0 - at::pow(o.beta2, steps);
      }
      for (size_t i = 0; i < groups_[g].params.size(); ++i) update(groups_[g], i, o, numbers);
    }
  }

 private:
  struct Numbers {
    at::Tensor lr, multiplier, correction1, correction2;  // fp64 scalars
    at::Tensor skip;                                      // bool scalar
  };

  static std::vector<at::Tensor> all_grads(const std::vector<OptimizerTensors>& groups) {
    std::vector<at::Tensor> grads;
    for (const OptimizerTensors& group : groups) grads.insert(grads.end(), group.grads.begin(), group.grads.end());
    return grads;
  }

  /// clip_coefficient() of a tensor.
  [[nodiscard]] at::Tensor clip(const at::Tensor& norm, const UpdateOptions& o) const {
    if (o.max_grad_norm <= 0.0) return at::ones_like(norm);
    const at::Tensor ratio = o.max_grad_norm / (rule_ == UpdateRule::kLamb ? norm : norm + kTorchClipEps);
    return ratio.clamp_max(1.0);
  }

  static void write(const at::Tensor& destination, const at::Tensor& value, const at::Tensor& skip) {
    destination.copy_(at::where(skip, destination, value));
  }

  void update(const OptimizerTensors& tensors, size_t i, const UpdateOptions& o, const Numbers& n) const {
    const bool lamb = rule_ == UpdateRule::kLamb;
    const at::Tensor& param = tensors.params[i];
    at::Tensor multiplier = n.multiplier;
    if (o.clip_per_tensor) multiplier = multiplier * clip(tensors.grads[i].norm().to(at::kDouble) * multiplier, o);
    at::Tensor grad = tensors.grads[i] * multiplier;
    if (!o.decoupled) grad = grad + param * o.weight_decay;
    const at::Tensor exp_avg = tensors.exp_avg[i] + (grad * o.beta3 - tensors.exp_avg[i] * (1.0 - o.beta1));
    const at::Tensor exp_avg_sq = tensors.exp_avg_sq[i] + (grad * grad - tensors.exp_avg_sq[i]) * (1.0 - o.beta2);
    const at::Tensor corrected = exp_avg_sq / n.correction2;
    at::Tensor step =
        exp_avg / n.correction1 / (o.eps_inside_sqrt ? (corrected + o.eps).sqrt() : corrected.sqrt() + o.eps);
    if (o.decoupled) step = step + param * o.weight_decay;
    at::Tensor rate = n.lr;
    if (lamb && o.trust_ratio) {
      const at::Tensor param_norm = param.norm().to(at::kDouble), step_norm = step.norm().to(at::kDouble);
      const at::Tensor usable = param_norm.ne(0).logical_and(step_norm.ne(0));
      at::Tensor ratio = (param_norm / step_norm).clamp_min(o.min_trust_ratio);
      if (o.max_trust_ratio > 0.0) ratio = ratio.clamp_max(o.max_trust_ratio);
      rate = n.lr * at::where(usable, ratio, at::ones_like(param_norm));
    }
    write(param, param - step * rate, n.skip);
    if (tensors.copies[i].defined()) write(tensors.copies[i], param.to(tensors.copies[i].scalar_type()), n.skip);
    write(tensors.exp_avg[i], exp_avg, n.skip);
    write(tensors.exp_avg_sq[i], exp_avg_sq, n.skip);
  }

  UpdateRule rule_;
  std::vector<OptimizerTensors> groups_;
  AtenList grads_;
};

/// Calls visit(tensor) for every tensor of every group, undefined copies too.
template <class Visit>
void for_each_tensor(const std::vector<OptimizerTensors>& groups, const Visit& visit) {
  for (const OptimizerTensors& group : groups) {
    for (const auto* list : {&group.params, &group.copies, &group.grads, &group.exp_avg, &group.exp_avg_sq}) {
      for (const at::Tensor& tensor : *list) visit(tensor);
    }
  }
}

const void* place_of(const at::Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr() : nullptr; }

bool same_tensors(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return x.is_same(y); });
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

bool dense(const std::vector<at::Tensor>& tensors, at::DeviceType device) {
  return std::all_of(tensors.begin(), tensors.end(), [device](const at::Tensor& tensor) {
    return tensor.device().type() == device && tensor.layout() == at::kStrided && tensor.is_contiguous();
  });
}

bool dense_fp32(const std::vector<OptimizerTensors>& groups, at::DeviceType device) {
  const auto is_fp32 = [](const at::Tensor& tensor) { return tensor.scalar_type() == at::kFloat; };
  return std::all_of(groups.begin(), groups.end(), [&](const OptimizerTensors& group) {
    for (const auto* list : {&group.params, &group.grads, &group.exp_avg, &group.exp_avg_sq}) {
      if (!dense(*list, device) || !std::all_of(list->begin(), list->end(), is_fp32)) return false;
    }
    return std::all_of(group.copies.begin(), group.copies.end(), [&](const at::Tensor& copy) {
      return !copy.defined() || (dense({copy}, device) && copy.element_size() == 2);
    });
  });
}

TensorList::TensorList(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
  TORCH_CHECK_VALUE(!tensors_.empty(), "TensorList: the list of tensors is empty");
  for (const at::Tensor& tensor : tensors_) {
    TORCH_CHECK_VALUE(tensor.is_floating_point() && tensor.device() == tensors_.front().device(), "TensorList: got ",
                      tensor.scalar_type(), " on ", tensor.device(), ", expected floating point on ",
                      tensors_.front().device(), ", the first tensor's device");
    places_.push_back(place_of(tensor));
  }
  const bool low_or_fp32 = std::all_of(tensors_.begin(), tensors_.end(),
                                       [](const at::Tensor& tensor) { return tensor.element_size() <= 4; });
  if (cpu::takes(tensors_)) {
    backend_ = cpu::make_list(tensors_);
  } else if (cuda_multi_tensor().list != nullptr && low_or_fp32 && dense(tensors_, at::kCUDA)) {
    backend_ = cuda_multi_tensor().list(tensors_);
  } else {
    backend_ = std::make_unique<AtenList>(tensors_);
  }
}

TensorList::~TensorList() = default;
TensorList::TensorList(TensorList&&) noexcept = default;
TensorList& TensorList::operator=(TensorList&&) noexcept = default;

bool TensorList::holds(const std::vector<at::Tensor>& tensors) const {
  return same_tensors(tensors, tensors_) &&
         std::equal(tensors_.begin(), tensors_.end(), places_.begin(),
                    [](const at::Tensor& tensor, const void* place) { return place_of(tensor) == place; });
}

const at::Tensor& TensorList::norm() {
  const at::NoGradGuard no_grad;
  return backend_->norm();
}

const at::Tensor& TensorList::norms() {
  const at::NoGradGuard no_grad;
  return backend_->norms();
}

void TensorList::unscale_(const at::Tensor& inv_scale, const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  backend_->unscale_(inv_scale, found_inf);
  bump_versions(tensors_);
}

OptimizerStep::OptimizerStep(UpdateRule rule, std::vector<OptimizerTensors> groups)
    : rule_(rule), groups_(std::move(groups)) {
  for (const OptimizerTensors& group : groups_) {
    const size_t size = group.params.size();
    TORCH_CHECK_VALUE(group.copies.size() == size && group.grads.size() == size && group.exp_avg.size() == size &&
                          group.exp_avg_sq.size() == size,
                      "OptimizerStep: a group of ", size, " params has ", group.copies.size(), " copies, ",
                      group.grads.size(), " grads, ", group.exp_avg.size(), " exp_avg and ", group.exp_avg_sq.size(),
                      " exp_avg_sq, expected as many of each");
    for (size_t i = 0; i < size; ++i) {
      TORCH_CHECK_VALUE(group.params[i].sizes() == group.grads[i].sizes(), "OptimizerStep: a param of ",
                        group.params[i].sizes(), " has a gradient of ", group.grads[i].sizes());
    }
  }
  for_each_tensor(groups_, [&](const at::Tensor& tensor) { places_.push_back(place_of(tensor)); });
  if (dense_fp32(groups_, at::kCPU)) {
    backend_ = cpu::make_step(rule, groups_);
  } else if (cuda_multi_tensor().step != nullptr && dense_fp32(groups_, at::kCUDA)) {
    backend_ = cuda_multi_tensor().step(rule, groups_);
  } else {
    backend_ = std::make_unique<AtenStep>(rule, groups_);
  }
}

OptimizerStep::~OptimizerStep() = default;
OptimizerStep::OptimizerStep(OptimizerStep&&) noexcept = default;
OptimizerStep& OptimizerStep::operator=(OptimizerStep&&) noexcept = default;

bool OptimizerStep::holds(const std::vector<OptimizerTensors>& groups) const {
  const auto same = [](const OptimizerTensors& a, const OptimizerTensors& b) {
    return same_tensors(a.params, b.params) && same_tensors(a.copies, b.copies) && same_tensors(a.grads, b.grads) &&
           same_tensors(a.exp_avg, b.exp_avg) && same_tensors(a.exp_avg_sq, b.exp_avg_sq);
  };
  if (!std::equal(groups.begin(), groups.end(), groups_.begin(), groups_.end(), same)) return false;
  bool unmoved = true;
  auto place = places_.begin();
  for_each_tensor(groups_, [&](const at::Tensor& tensor) { unmoved = place_of(tensor) == *place++ && unmoved; });
  return unmoved;
}

void OptimizerStep::run(const std::vector<UpdateOptions>& options, const StepTensors& scalars) {
  TORCH_CHECK_VALUE(options.size() == groups_.size(), "OptimizerStep::run: got options for ", options.size(),
                    " groups, expected ", groups_.size());
  const at::NoGradGuard no_grad;
  if (reference::replaces(OpGroup::kOptimizer)) return reference::step(rule_, groups_, options, scalars);
  backend_->run(options, scalars);
  for (const OptimizerTensors& group : groups_) {
    bump_versions(group.params);
    bump_versions(group.copies);
  }
}

}  // namespace bert::ops
