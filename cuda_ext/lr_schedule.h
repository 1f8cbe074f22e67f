// Learning-rate schedules: a functor for host and device, from the number of steps applied so far to the rate of the
// next one. Plain data: kernels take it by value. optim/lr_schedule.h makes them.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda_ext/scalar/math.h"

namespace bert {

/// The decay after the warm-up. The formulas are at LrSchedule.
enum class LrDecay : int8_t { kPoly, kPolyRebased, kLinear, kCosine, kConstant, kOneMinusSqrt };

/// The rate of step k of max_steps. x = k / max_steps, w = warmup_proportion; below w: lr x / w, or, for
/// b = warmup_start, b lr + (1 - b) lr x / w. From w to decay_start: lr. From s on, the later of w and decay_start,
///   kPoly          lr (1 - x)^degree    Note [LR jump at warm-up end]
///   kPolyRebased   lr ((1 - x) / (1 - s))^degree
///   kLinear        lr (1 - x) / (1 - s)
///   kCosine        lr (1 + cos(pi (x - s) / (1 - s))) / 2
///   kOneMinusSqrt  lr (1 - sqrt((x - s) / (1 - s)))
///   kConstant      lr
/// and, but for kConstant, exactly 0 from x = 1 on. Never negative. Each rate r of the decay becomes
/// min_lr_ratio lr + (1 - min_lr_ratio) r, as in transformers.
///
/// Note [LR jump at warm-up end]
/// The reference's poly decay starts from the full schedule, (1 - x)^0.5, not from the end of warm-up, so the rate
/// drops there: phase 1 (lr 6e-3, w 0.2843, 7038 steps) goes from 5.997e-3 at step 2000 to 5.076e-3 at step 2001. It is
/// kept on purpose: the published losses were reached with it.
struct LrSchedule {
  double lr = 0.0;
  double warmup_proportion = 0.0;
  double degree = 0.5;
  int64_t max_steps = 1;
  int64_t first_step = 1;  // k of the first step
  double decay_start = 0.0;
  double min_lr_ratio = 0.0;
  double warmup_start = 0.0;
  LrDecay decay = LrDecay::kPoly;

  BERT_HOST_DEVICE double operator()(int64_t applied_steps) const {
    const double x = static_cast<double>(applied_steps + first_step) / static_cast<double>(max_steps);
    if (x < warmup_proportion) return warmup_start * lr + (1.0 - warmup_start) * (lr * x / warmup_proportion);
    return min_lr_ratio * lr + (1.0 - min_lr_ratio) * above_minimum(x);
  }

 private:
  BERT_HOST_DEVICE double above_minimum(double x) const {
    if (decay == LrDecay::kConstant) return lr;
    if (x >= 1.0) return 0.0;
    if (x < decay_start) return lr;
    const double start = decay_start > warmup_proportion ? decay_start : warmup_proportion;
    const double left = (1.0 - x) / (1.0 - start);
    switch (decay) {
      case LrDecay::kPoly:
        return lr * pow(1.0 - x, degree);
      case LrDecay::kPolyRebased:
        return lr * pow(left, degree);
      case LrDecay::kCosine: {
        const double sine = sine_of_pi(0.5 * left);  // (1 - cos(pi left)) / 2 is its square
        return lr * sine * sine;
      }
      case LrDecay::kOneMinusSqrt:
        return lr * (1.0 - sqrt((x - start) / (1.0 - start)));
      default:
        return lr * left;
    }
  }
};

}  // namespace bert
