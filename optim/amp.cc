#include "optim/amp.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace bert {
namespace {

std::vector<at::Tensor> gradients_of(const torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> gradients;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const at::Tensor& gradient = parameter.grad();
      if (gradient.defined()) gradients.push_back(gradient.is_sparse() ? gradient._values() : gradient);
    }
  }
  return gradients;
}

/// "highest", "high" or "medium", the words of at::globalContext().
std::string matmul_precision() {
  const at::Float32MatmulPrecision precision = at::globalContext().float32MatmulPrecision();
  if (precision == at::Float32MatmulPrecision::HIGHEST) return "highest";
  return precision == at::Float32MatmulPrecision::HIGH ? "high" : "medium";
}

constexpr const char* kNoInfChecks =
    "GradScaler::step: no inf checks were recorded for this optimizer, as none of its parameters has a gradient. Call "
    "backward before, or leave out the step.";

/// The first entry with one of these names, or nothing.
std::optional<double> number_of(const StateDict& state, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const at::Tensor* value = state.find(name);
    if (value == nullptr) continue;
    TORCH_CHECK_VALUE(value->defined() && value->dim() == 0, "GradScaler: \"", name,
                      "\" in the state is no scalar; nothing was loaded");
    return value->item<double>();
  }
  return std::nullopt;
}

void check_entry(const char* name, const std::optional<double>& value, double low, double high) {
  TORCH_CHECK_VALUE(value, "GradScaler: the state has no \"", name, "\"; nothing was loaded");
  TORCH_CHECK_VALUE(*value >= low && *value <= high, "GradScaler: \"", name, "\" in the state is ", *value,
                    ", expected ", low, " to ", high, "; nothing was loaded");
}

}  // namespace

at::ScalarType weights_dtype(Precision precision) {
  if (precision == Precision::kBf16Weights) return at::kBFloat16;
  return precision == Precision::kFp16Weights ? at::kHalf : at::kFloat;
}

at::ScalarType compute_dtype(Precision precision) {
  switch (precision) {
    case Precision::kBf16:
    case Precision::kBf16Weights:
    case Precision::kFp8:
      return at::kBFloat16;
    case Precision::kFp16:
    case Precision::kFp16Weights:
      return at::kHalf;
    case Precision::kFp32:
    case Precision::kTf32:
      break;
  }
  return at::kFloat;
}

bool needs_loss_scale(Precision precision) {
  return precision == Precision::kFp16 || precision == Precision::kFp16Weights;
}

void set_matmul_precision(Precision precision) {
  at::globalContext().setFloat32MatmulPrecision(precision == Precision::kTf32 ? "high" : "highest");
}

AutocastGuard::AutocastGuard(at::DeviceType device_type, Precision precision)
    : device_type_(device_type),
      previous_enabled_(at::autocast::is_autocast_enabled(device_type)),
      previous_dtype_(at::autocast::get_autocast_dtype(device_type)) {
  if (precision == Precision::kFp32 || precision == Precision::kTf32) {
    previous_matmul_precision_ = matmul_precision();
    set_matmul_precision(precision);
  }
  const at::ScalarType dtype = compute_dtype(precision);
  const bool enabled = dtype != weights_dtype(precision);
  if (enabled) set_dtype(dtype);
  at::autocast::set_autocast_enabled(device_type, enabled);
  at::autocast::increment_nesting();
}

AutocastGuard::~AutocastGuard() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_type_, previous_enabled_);
  set_dtype(previous_dtype_);
  if (!previous_matmul_precision_.empty()) at::globalContext().setFloat32MatmulPrecision(previous_matmul_precision_);
}

void AutocastGuard::set_dtype(at::ScalarType dtype) const {
  if (at::autocast::get_autocast_dtype(device_type_) == dtype) return;
  // The key of the cache is the weight alone: a scope inside of one with another dtype would get the outer casts.
  at::autocast::clear_cache();
  at::autocast::set_autocast_dtype(device_type_, dtype);
}

GradScaler::GradScaler(const AmpConfig& config, at::Device device, bool enabled) : config_(config), enabled_(enabled) {
  validate(config);
  if (!config.dynamic) config_.growth_factor = config_.backoff_factor = 1.0;
  scale_ = at::full({}, enabled ? config.init_scale : 1.0, at::TensorOptions().dtype(at::kFloat).device(device));
  inv_scale_ = scale_.reciprocal();
  growth_tracker_ = at::zeros({}, at::TensorOptions().dtype(at::kInt).device(device));
  consecutive_skips_ = at::zeros_like(scale_);
  skipped_ = at::zeros_like(scale_);
  one_ = at::ones_like(scale_);
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const { return enabled_ ? loss.to(at::kFloat) * scale_ : loss; }

GradScaler::OptimizerRecord& GradScaler::begin_step(torch::optim::Optimizer& optimizer) {
  OptimizerRecord& record = records_[&optimizer];
  TORCH_CHECK(record.stage != Stage::kStepped,
              "GradScaler::step was called twice for one optimizer; call update() between steps");
  return record;
}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  if (!enabled_) return;
  OptimizerRecord& record = records_[&optimizer];
  TORCH_CHECK(record.stage != Stage::kUnscaled,
              "GradScaler::unscale_ was called twice for one optimizer since the last update()");
  TORCH_CHECK(record.stage != Stage::kStepped, "GradScaler::unscale_ was called after step(); call it before");
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients = gradients_of(optimizer);
  for (const at::Tensor& gradient : gradients) {
    TORCH_CHECK_VALUE(gradient.scalar_type() != at::kHalf,
                      "Attempting to unscale FP16 gradients. Keep the parameters in fp32 under autocast, or leave out "
                      "GradScaler::unscale_ and give a BertOptimizer to step().");
  }
  if (!gradients.empty()) {
    if (!record.unscaled_found_inf.defined()) record.unscaled_found_inf = at::empty_like(scale_);
    record.gradients.unscale_(gradients, inv_scale_, record.unscaled_found_inf.zero_());
    record.found_inf = record.unscaled_found_inf;
  }
  record.stage = Stage::kUnscaled;
}

void GradScaler::step(BertOptimizer& optimizer, const at::Tensor& lr) {
  if (!enabled_) {
    optimizer.apply({.lr = lr, .inv_scale = {}, .found_inf = {}});
    records_[&optimizer].found_inf = optimizer.found_inf();
    return;
  }
  OptimizerRecord& record = begin_step(optimizer);
  if (record.stage == Stage::kUnscaled) {
    TORCH_CHECK(record.found_inf.defined(), kNoInfChecks);
    optimizer.apply({.lr = lr, .inv_scale = {}, .found_inf = record.found_inf});
  } else {
    TORCH_CHECK(!gradients_of(optimizer).empty(), kNoInfChecks);
    optimizer.apply({.lr = lr, .inv_scale = inv_scale_, .found_inf = {}});
  }
  // The optimizer's own result, because it may know of other ranks' gradients. Valid until the next step, which is
  // after update().
  record.found_inf = optimizer.found_inf();
  record.stage = Stage::kStepped;
}

void GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (auto* ours = dynamic_cast<BertOptimizer*>(&optimizer)) return step(*ours);
  if (!enabled_) {
    optimizer.step();
    return;
  }
  OptimizerRecord& record = begin_step(optimizer);
  if (record.stage == Stage::kReady) unscale_(optimizer);
  TORCH_CHECK(record.found_inf.defined(), kNoInfChecks);
  if (record.found_inf.item<float>() == 0.0F) optimizer.step();
  record.stage = Stage::kStepped;
}

void GradScaler::record(const at::Tensor& found_inf) {
  if (enabled_) recorded_ = recorded_.defined() ? recorded_ + found_inf : found_inf.clone();
}

at::Tensor GradScaler::count_skips() {
  at::Tensor found_inf = recorded_;
  for (const auto& [optimizer, record] : records_) {
    if (record.found_inf.defined()) found_inf = found_inf.defined() ? found_inf + record.found_inf : record.found_inf;
  }
  if (!found_inf.defined()) return found_inf;
  at::sign_out(skipped_, found_inf);
  consecutive_skips_.add_(one_).mul_(skipped_);  // tensors only: a number would be copied in every step
  return found_inf;
}

void GradScaler::update() {
  const at::NoGradGuard no_grad;
  const at::Tensor found_inf = count_skips();
  TORCH_CHECK(found_inf.defined() || !enabled_, "GradScaler::update was called without a step before it");
  if (!found_inf.defined()) return;
  if (enabled_) {
    at::_amp_update_scale_(scale_, growth_tracker_, found_inf, config_.growth_factor, config_.backoff_factor,
                           config_.growth_interval);
  }
  reset();
}

void GradScaler::update(double new_scale) {
  constexpr double kLeast = std::numeric_limits<float>::min(), kMost = std::numeric_limits<float>::max();
  TORCH_CHECK_VALUE(new_scale >= kLeast && new_scale <= kMost, "GradScaler::update: the new scale is ", new_scale,
                    ", expected ", kLeast, " to ", kMost);
  const at::NoGradGuard no_grad;
  count_skips();
  if (enabled_) scale_.fill_(new_scale);
  reset();
}

void GradScaler::check_progress(const BertOptimizer& optimizer) const {
  const auto skips = static_cast<int64_t>(consecutive_skips_.item<float>());
  const double scale = scale_.item<double>();
  const bool too_many = config_.max_consecutive_skips > 0 && skips >= config_.max_consecutive_skips;
  const bool too_small = enabled_ && scale < config_.min_scale;
  if (!too_many && !too_small) return;
  const std::string limit = too_many ? c10::str(skips, " steps in a row were skipped, amp.max_consecutive_skips is ",
                                                config_.max_consecutive_skips)
                                     : c10::str("the loss scale fell to ", scale, ", below the least, ",
                                                config_.min_scale, ", with ", skips, " steps skipped in a row");
  TORCH_CHECK(false, limit, ". The first gradient with inf or NaN is that of ",
              optimizer.first_non_finite_gradient().value_or("no parameter in the last step"),
              ". Lower the learning rate, warm up longer, or train in bf16 or fp32.");
}

void GradScaler::reset() {
  for (auto& [optimizer, record] : records_) {
    record.stage = Stage::kReady;
    record.found_inf = at::Tensor();
  }
  recorded_ = at::Tensor();
  at::reciprocal_out(inv_scale_, scale_);
}

StateDict GradScaler::state_dict() const {
  StateDict state;
  if (!enabled_) return state;
  state.insert("scale", scale_);
  state.insert("growth_tracker", growth_tracker_);
  return state;
}

void GradScaler::load_state_dict(const StateDict& state) {
  if (!enabled_) return;
  TORCH_CHECK_VALUE(!state.is_empty(),
                    "GradScaler: the state is empty; it may be that of a scaler that was not enabled");
  const std::optional<double> scale = number_of(state, {"scale"}),
                              tracker = number_of(state, {"growth_tracker", "_growth_tracker"}),
                              growth_factor = number_of(state, {"growth_factor"}),
                              backoff_factor = number_of(state, {"backoff_factor"}),
                              growth_interval = number_of(state, {"growth_interval"});
  check_entry("scale", scale, std::numeric_limits<float>::min(), std::numeric_limits<float>::max());
  check_entry("growth_tracker", tracker, 0.0, std::numeric_limits<int32_t>::max());
  AmpConfig config = config_;
  if (config_.dynamic) {
    if (growth_factor) config.growth_factor = *growth_factor;
    if (backoff_factor) config.backoff_factor = *backoff_factor;
    if (growth_interval) {
      check_entry("growth_interval", growth_interval, 1.0, std::numeric_limits<int32_t>::max());
      config.growth_interval = static_cast<int64_t>(*growth_interval);
    }
    validate(config);
  }
  const at::NoGradGuard no_grad;
  if (config_.dynamic) scale_.fill_(*scale);
  config_ = config;
  growth_tracker_.fill_(std::min(static_cast<int64_t>(*tracker), config_.growth_interval - 1));
  reset();
}

void GradScaler::continue_skips(int64_t consecutive_skips) {
  consecutive_skips_.fill_(std::max<int64_t>(consecutive_skips, 0));
}

}  // namespace bert
