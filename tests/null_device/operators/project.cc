// Linked into programs of the project: its kernels, which the emulator runs, become work of streams, and what its
// operators and its optimizers read and write is noted.
#include "tests/null_device/operators/project.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "cuda_ext/multi_tensor/backend.h"
#include "tests/null_device/operators/operators.h"

namespace null_device {
namespace {

using bert::ops::OptimizerStep;

/// True if the page lies in memory that the program uses.
bool is_in_use(uintptr_t address) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  unsigned char resident = 0;
  return mincore(reinterpret_cast<void*>(address / page * page), page, &resident) == 0 && (resident & 1) != 0;
}

/// Notes what a step reads and writes before it runs.
class NotedStep : public OptimizerStep::Backend {
 public:
  explicit NotedStep(std::unique_ptr<OptimizerStep::Backend> backend) : backend_(std::move(backend)) {}

  void run(const std::vector<bert::ops::OptimizerTensors>& groups, const std::vector<bert::UpdateOptions>& options,
           const bert::ops::StepTensors& scalars) override {
    note(groups, scalars);
    backend_->run(groups, options, scalars);
  }

 private:
  static void note(const std::vector<bert::ops::OptimizerTensors>& groups, const bert::ops::StepTensors& scalars) {
    if (groups.empty() || groups.front().params.empty() || !groups.front().params.front().is_cuda()) return;
    Work work;
    work.name = "the optimizer's step";
    work.run = [] {};
    for (const auto& group : groups) {
      for (const auto* list : {&group.params, &group.copies, &group.exp_avg, &group.exp_avg_sq, &group.ema}) {
        for (const at::Tensor& tensor : *list) add_accesses(work.accesses, tensor, /*write=*/true);
      }
      for (const at::Tensor& tensor : group.grads) add_accesses(work.accesses, tensor, /*write=*/false);
    }
    for (const at::Tensor* tensor : {&scalars.lr, &scalars.inv_scale, &scalars.found_inf}) {
      add_accesses(work.accesses, *tensor, /*write=*/false);
    }
    for (const at::Tensor* tensor : {&scalars.step, &scalars.grad_norm, &scalars.skipped}) {
      add_accesses(work.accesses, *tensor, /*write=*/true);
    }
    const c10::cuda::CUDAGuard guard(groups.front().params.front().device());
    enqueue(c10::cuda::getCurrentCUDAStream().stream(), std::move(work));
  }

  std::unique_ptr<OptimizerStep::Backend> backend_;
};

[[maybe_unused]] const bool kAttached = [] {
  queue_launches();
  at_start([] {
    watch_operators("bert");
    static auto* const made_by_cuda = bert::ops::cuda_multi_tensor().step;
    bert::ops::cuda_multi_tensor().step = [](bert::UpdateRule rule, const auto& groups) {
      return std::unique_ptr<OptimizerStep::Backend>(std::make_unique<NotedStep>(made_by_cuda(rule, groups)));
    };
  });
  return true;
}();

}  // namespace

std::string objection_to(uintptr_t word) {
  // Below are sizes and counts, above are numbers of fp64 and addresses that no program has.
  constexpr uintptr_t kLowest = uintptr_t{1} << 32, kHighest = uintptr_t{1} << 47;
  if (word < kLowest || word >= kHighest) return "";
  const void* const pointer = reinterpret_cast<const void*>(word);
  if (!is_device(pointer) && !is_in_use(word)) return "";
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, pointer) != cudaSuccess) return "";
  const int current = c10::cuda::current_device();
  if (attributes.type == cudaMemoryTypeUnregistered) return "memory of the host";
  if (attributes.type == cudaMemoryTypeDevice && attributes.device != current) {
    return "memory of device " + std::to_string(attributes.device) + " on device " + std::to_string(current);
  }
  if (attributes.type == cudaMemoryTypeDevice && !is_allocated(pointer)) return "memory of a block that was freed";
  return "";  // pinned memory is as good as a device's
}

std::string objection_to_stream(CUstream_st* stream) {
  CUstream_st* const current = c10::cuda::getCurrentCUDAStream().stream();
  if (stream == current) return "";
  return " is launched on " + in_words(stream) + ", and LibTorch's current one, in whose order its tensors are, is " +
         in_words(current);
}

}  // namespace null_device
