// The schedules' kernel, run by the emulator: what the functor gives on the host.
#include "cuda_ext/multi_tensor_launchers.h"
#include "tests/kernel_testing.h"

namespace bert::kernels {

TEST_CASE("The learning rate on the device is the functor's", "[cuda]") {
  const DeviceBuffer<int64_t> applied_steps(1);
  const DeviceBuffer<float> rate(1);
  for (const LrDecay decay :
       {LrDecay::kPoly, LrDecay::kPolyRebased, LrDecay::kLinear, LrDecay::kCosine, LrDecay::kConstant}) {
    const LrSchedule schedule{.lr = 6e-3, .warmup_proportion = 0.25, .max_steps = 100, .decay = decay};
    for (const int64_t step : {0, 20, 24, 25, 60, 98, 99, 100}) {
      *applied_steps.data() = step;
      learning_rate(schedule, applied_steps.data(), rate.data(), nullptr);
      CHECK(*rate.data() == static_cast<float>(schedule(step)));
    }
  }
  CHECK(applied_steps.intact());
  CHECK(rate.intact());
}

}  // namespace bert::kernels
