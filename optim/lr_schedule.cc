#include "optim/lr_schedule.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "cuda_ext/multi_tensor.h"

namespace bert {
namespace {

struct ScheduleForm {
  LrDecay decay;
  bool whole_steps;  // the warm-up ends at a whole step
  int64_t first_step;
};

/// In the order of ScheduleType.
constexpr std::array<ScheduleForm, 7> kForms{{{LrDecay::kPoly, false, 1},
                                              {LrDecay::kPolyRebased, false, 1},
                                              {LrDecay::kLinear, false, 1},
                                              {LrDecay::kCosine, false, 1},
                                              {LrDecay::kConstant, false, 1},
                                              {LrDecay::kPoly, true, 0},
                                              {LrDecay::kLinear, false, 1}}};

/// In the order of WsdDecay.
constexpr std::array<LrDecay, 4> kWsdDecays{LrDecay::kLinear, LrDecay::kCosine, LrDecay::kPolyRebased,
                                            LrDecay::kOneMinusSqrt};

}  // namespace

LrSchedule make_schedule(const ScheduleConfig& config, double lr, int64_t max_steps) {
  validate(config);
  validate(OptimizerConfig{.lr = lr});
  TORCH_CHECK_VALUE(max_steps >= 1, "schedule: max_steps is ", max_steps, ", expected at least 1");
  const ScheduleForm& form = kForms[static_cast<size_t>(config.type)];
  const auto total = static_cast<double>(max_steps);
  const double warmup = config.warmup_proportion;
  LrSchedule schedule{.lr = lr,
                      .warmup_proportion = form.whole_steps ? std::floor(warmup * total) / total : warmup,
                      .degree = config.degree,
                      .max_steps = max_steps,
                      .first_step = form.first_step,
                      .min_lr_ratio = config.min_lr_ratio,
                      .decay = form.decay};
  if (config.type == ScheduleType::kWsd) {
    schedule.warmup_start = config.min_lr_ratio;
    schedule.degree = 0.5;  // of kPolyRebased, the shape sqrt
    schedule.decay_start = (total - std::round(config.decay_proportion * total)) / total;  // a whole step
    schedule.decay = kWsdDecays[static_cast<size_t>(config.decay_type)];
  }
  return schedule;
}

LrSchedule with_warmup(LrSchedule schedule, int64_t end) {
  schedule.warmup_proportion = static_cast<double>(end) / static_cast<double>(schedule.max_steps);
  return schedule;
}

LrSchedule with_decay(LrSchedule schedule, int64_t begin, int64_t end) {
  const auto total = static_cast<double>(end);
  schedule.decay_start = static_cast<double>(begin) / total;
  schedule.warmup_proportion =
      std::min(schedule.warmup_proportion * (static_cast<double>(schedule.max_steps) / total), schedule.decay_start);
  schedule.max_steps = end;
  return schedule;
}

at::Tensor learning_rate(const LrSchedule& schedule, const at::Tensor& applied_steps) {
  const at::Tensor rate = at::empty({}, applied_steps.options().dtype(at::kFloat));
  ops::learning_rate_out(schedule, applied_steps, rate);
  return rate;
}

}  // namespace bert
