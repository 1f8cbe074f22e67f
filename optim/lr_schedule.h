// Learning-rate schedules: functors for host and device, from the number of steps applied so far to the rate of the
// next one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstdint>

#include "cuda_ext/philox.h"
#include "optim/config.h"

namespace bert {

enum class ScheduleType : int8_t { kPoly, kLinear, kConstant };

/// The rate of step k = applied_steps + 1 of max_steps. p = k / max_steps, w = warmup_proportion; below w: lr p / w.
/// From w on
///   poly      lr (1 - p)^degree    Note [LR jump at warm-up end]
///   linear    lr (1 - p) / (1 - w)
///   constant  lr
/// poly and linear give exactly 0 at the last step and after it. Never negative. A skipped step does not advance k.
///
/// Note [LR jump at warm-up end]
/// The reference's poly decay starts from the full schedule, (1 - p)^0.5, not from the end of warm-up, so the rate
/// drops there: phase 1 (lr 6e-3, w 0.2843, 7038 steps) goes from 5.997e-3 at step 2000 to 5.076e-3 at step 2001. It is
/// kept on purpose: the published losses were reached with it.
struct LrSchedule {
  double lr = 0.0;
  double warmup_proportion = 0.0;
  double degree = 0.5;
  int64_t max_steps = 1;
  ScheduleType type = ScheduleType::kPoly;

  BERT_HOST_DEVICE double operator()(int64_t applied_steps) const {
    const double progress = static_cast<double>(applied_steps + 1) / static_cast<double>(max_steps);
    if (progress < warmup_proportion) return lr * progress / warmup_proportion;
    if (type == ScheduleType::kConstant) return lr;
    if (progress >= 1.0) return 0.0;
    if (type == ScheduleType::kLinear) return lr * (1.0 - progress) / (1.0 - warmup_proportion);
    return lr * std::pow(1.0 - progress, degree);
  }
};

/// Throws c10::Error when a value is out of its range or max_steps < 1. lr is the peak, max_steps counts applied steps.
[[nodiscard]] LrSchedule make_schedule(const ScheduleConfig& config, double lr, int64_t max_steps);

/// The schedule at `applied_steps` (int64 scalar, BertOptimizer::applied_steps()), fp32 scalar on its device, without
/// synchronising.
[[nodiscard]] at::Tensor learning_rate(const LrSchedule& schedule, const at::Tensor& applied_steps);
/// The same into `rate`.
void learning_rate_out(const LrSchedule& schedule, const at::Tensor& applied_steps, const at::Tensor& rate);

}  // namespace bert
