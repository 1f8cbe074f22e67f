// The kernel of the schedules, run by the emulator in every order: its rates equal the functor's on the host.
#include "cuda_ext/kernels/multi_tensor_launchers.h"
#include "tests/support/kernel_testing.h"

namespace bert::kernels {

TEST_CASE("The learning rate on the device is the functor's", "[unit][cuda_emulator]") {
  const DeviceBuffer<int64_t> applied_steps(1);
  const DeviceBuffer<float> rate(1);
  for (const LrDecay decay :
       {LrDecay::kPoly, LrDecay::kPolyRebased, LrDecay::kLinear, LrDecay::kCosine, LrDecay::kConstant}) {
    const LrSchedule schedule{.lr = 6e-3, .warmup_proportion = 0.25, .max_steps = 100, .decay = decay};
    for (const int64_t step : {0, 20, 24, 25, 60, 98, 99, 100}) {
      *applied_steps.data() = step;
      run_in_every_order(
          /*every_order=*/true, [&] { learning_rate(schedule, applied_steps.data(), rate.data(), nullptr); }, rate);
      CHECK(*rate.data() == static_cast<float>(schedule(step)));
    }
  }
  CHECK(applied_steps.intact());
}

}  // namespace bert::kernels
