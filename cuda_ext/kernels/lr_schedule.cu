// The learning rate of a step on the device, from the optimizer's step counter. The host neither waits for the counter
// nor copies a rate, so a graph can capture the step. One thread; 12 bytes. Compiled for sm_90 and emulated; not
// measured on a GPU.
#include "cuda_ext/kernels/launch.h"
#include "cuda_ext/kernels/multi_tensor_launchers.h"

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {
namespace {

__global__ void learning_rate_kernel(LrSchedule schedule, const int64_t* applied_steps, float* rate) {
  if (threadIdx.x == 0) *rate = static_cast<float>(schedule(*applied_steps));
}

}  // namespace

void learning_rate(const LrSchedule& schedule, const int64_t* applied_steps, float* rate, Stream stream) {
  launch(learning_rate_kernel, {}, kWarpSize, 0, stream, schedule, applied_steps, rate);
}

}  // namespace BERT_KERNEL_BUILD
}  // namespace bert::kernels
