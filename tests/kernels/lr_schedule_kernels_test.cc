// The kernel of the schedules, run by the emulator in every order: its rates equal the functor's on the host.
#include "cuda_ext/kernels/multi_tensor_launchers.h"
#include "tests/support/kernel_testing.h"

namespace bert::kernels {

TEST_CASE("The learning rate on the device is the functor's", "[unit][cuda_emulator]") {
  const DeviceBuffer<int64_t> applied_steps(1);
  const DeviceBuffer<float> rate(1);
  const auto check = [&](const LrSchedule& schedule) {
    for (const int64_t step : {0, 20, 24, 25, 60, 98, 99, 100}) {
      *applied_steps.data() = step;
      run_in_every_order(
          /*every_order=*/true, [&] { learning_rate(schedule, applied_steps.data(), rate.data(), nullptr); }, rate);
      CHECK(*rate.data() == static_cast<float>(schedule(step)));
    }
  };
  for (const LrDecay decay : {LrDecay::kPoly, LrDecay::kPolyRebased, LrDecay::kLinear, LrDecay::kCosine,
                              LrDecay::kConstant, LrDecay::kOneMinusSqrt}) {
    LrSchedule schedule{.lr = 6e-3, .warmup_proportion = 0.25, .max_steps = 100, .decay = decay};
    check(schedule);
    schedule.decay_start = 0.5;
    schedule.min_lr_ratio = 0.1;
    check(schedule);
  }
  // Hand values of warm-up, stable and decay: 0.01 + 0.09 * 0.5, 0.1, 0.01 + 0.09 * (1 - 0.5), 0.01.
  const LrSchedule wsd{.lr = 0.1,
                       .warmup_proportion = 0.2,
                       .max_steps = 100,
                       .decay_start = 0.6,
                       .min_lr_ratio = 0.1,
                       .warmup_start = 0.1,
                       .decay = LrDecay::kOneMinusSqrt};
  for (const auto& [step, want] : {std::pair{9, 0.055F}, {49, 0.1F}, {69, 0.055F}, {99, 0.01F}}) {
    *applied_steps.data() = step;
    learning_rate(wsd, applied_steps.data(), rate.data(), nullptr);
    CHECK(*rate.data() == testing::Approx(want).epsilon(1e-6));
  }
  CHECK(applied_steps.intact());
}

}  // namespace bert::kernels
