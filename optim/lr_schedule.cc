#include "optim/lr_schedule.h"

#include <ATen/ATen.h>

#include <array>
#include <string_view>

#include "cuda_ext/multi_tensor.h"

namespace bert {
namespace {

struct NamedSchedule {
  std::string_view name;
  LrDecay decay;
  bool whole_steps;  // the warm-up ends at a whole step
  int64_t first_step;
};

constexpr std::array<NamedSchedule, 6> kSchedules{{{"poly", LrDecay::kPoly, false, 1},
                                                   {"poly_rebased", LrDecay::kPolyRebased, false, 1},
                                                   {"linear", LrDecay::kLinear, false, 1},
                                                   {"cosine", LrDecay::kCosine, false, 1},
                                                   {"constant", LrDecay::kConstant, false, 1},
                                                   {"tensorflow", LrDecay::kPoly, true, 0}}};

}  // namespace

LrSchedule make_schedule(const ScheduleConfig& config, double lr, int64_t max_steps) {
  validate(config);
  validate(OptimizerConfig{.lr = lr});
  TORCH_CHECK_VALUE(max_steps >= 1, "schedule: max_steps is ", max_steps, ", expected at least 1");
  for (const NamedSchedule& named : kSchedules) {
    if (config.type != named.name) continue;
    const auto total = static_cast<double>(max_steps);
    const double warmup = config.warmup_proportion;
    return {.lr = lr,
            .warmup_proportion = named.whole_steps ? std::floor(warmup * total) / total : warmup,
            .degree = config.degree,
            .max_steps = max_steps,
            .first_step = named.first_step,
            .decay = named.decay};
  }
  TORCH_INTERNAL_ASSERT(false, "schedule.type ", config.type, " has a name and no formula");
}

at::Tensor learning_rate(const LrSchedule& schedule, const at::Tensor& applied_steps) {
  const at::Tensor rate = at::empty({}, applied_steps.options().dtype(at::kFloat));
  ops::learning_rate_out(schedule, applied_steps, rate);
  return rate;
}

}  // namespace bert
