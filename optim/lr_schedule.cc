#include "optim/lr_schedule.h"

#include <ATen/ATen.h>

namespace bert {

LrSchedule make_schedule(const ScheduleConfig& config, double lr, int64_t max_steps) {
  validate(config);
  validate(OptimizerConfig{.lr = lr});
  TORCH_CHECK_VALUE(max_steps >= 1, "schedule: max_steps is ", max_steps, ", expected at least 1");
  ScheduleType type = ScheduleType::kPoly;
  if (config.type == "linear") type = ScheduleType::kLinear;
  if (config.type == "constant") type = ScheduleType::kConstant;
  return {.lr = lr,
          .warmup_proportion = config.warmup_proportion,
          .degree = config.degree,
          .max_steps = max_steps,
          .type = type};
}

at::Tensor learning_rate(const LrSchedule& schedule, const at::Tensor& applied_steps) {
  const at::Tensor rate = at::empty({}, applied_steps.options().dtype(at::kFloat));
  learning_rate_out(schedule, applied_steps, rate);
  return rate;
}

void learning_rate_out(const LrSchedule& schedule, const at::Tensor& applied_steps, const at::Tensor& rate) {
  if (applied_steps.is_cpu()) {
    *rate.mutable_data_ptr<float>() = static_cast<float>(schedule(*applied_steps.const_data_ptr<int64_t>()));
    return;
  }
  const at::Tensor progress = (applied_steps.to(at::kDouble) + 1.0) / static_cast<double>(schedule.max_steps);
  at::Tensor value = at::full_like(progress, schedule.lr);
  if (schedule.type != ScheduleType::kConstant) {
    const at::Tensor left = (1.0 - progress).clamp_min(0.0);
    const at::Tensor decayed =
        schedule.type == ScheduleType::kLinear ? left / (1.0 - schedule.warmup_proportion) : left.pow(schedule.degree);
    value = at::where(progress < 1.0, decayed * schedule.lr, at::zeros_like(progress));
  }
  const at::Tensor warming = progress * (schedule.lr / schedule.warmup_proportion);
  rate.copy_(at::where(progress < schedule.warmup_proportion, warming, value));
}

}  // namespace bert
