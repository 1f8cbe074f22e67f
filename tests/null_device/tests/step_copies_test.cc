// A step's batches on their way to the device: they are copied while the step before computes, and no order is missing.
#include "app/train/step/step_copies.h"

#include <atomic>
#include <cstring>
#include <future>
#include <vector>

#include "tests/null_device/tests/device_testing.h"
#include "tests/null_device/tests/step_testing.h"

namespace bert {
namespace {

using at::Tensor;
using namespace testing;

/// A step of two micro-batches in pinned memory.
GlobalStep step_of(int64_t number, const std::vector<int64_t>& lengths = {4, 9, 3, 7}) {
  GlobalStep step;
  step.micro_batches = pinned(random_micro_batches(number, 2, lengths));
  return step;
}

/// Work of a step on the current stream: it reads all batches.
Tensor sum_of(const GlobalStep& step) {
  Tensor sum = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(kFirst));
  for (const PackedBatch& batch : step.micro_batches) {
    PackedBatch::visit_tensors(batch, [&](const Tensor& tensor) {
      if (tensor.defined()) sum = sum + tensor.sum(at::kDouble);
    });
  }
  return sum;
}

double sum_on_host(const GlobalStep& step) {
  double sum = 0;
  for (const PackedBatch& batch : step.micro_batches) {
    PackedBatch::visit_tensors(batch, [&](const Tensor& tensor) {
      if (tensor.defined()) sum += tensor.sum(at::kDouble).item<double>();
    });
  }
  return sum;
}

}  // namespace

TEST_CASE("Steps compute after their copies, which come after the last step in their buffer", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  std::vector<double> want;
  std::vector<Tensor> got;
  int64_t allocations = 0;
  check_no_fault(faults_of([&] {
    StepCopies copies(kFirst);
    for (int64_t number = 0; number < 8; ++number) {
      if (number == 6) allocations = null_device::count("allocation");
      // The third and fourth step are longer, so that the buffers grow.
      GlobalStep step = number < 2 ? step_of(number) : step_of(number, {9, 32, 30, 31, 30});
      want.push_back(sum_on_host(step));
      copies.begin(step);
      CHECK(step.micro_batches.back().cu_seqlens.device() == kFirst);
      got.push_back(sum_of(step));
      copies.end();
    }
  }));
  CHECK(null_device::count("allocation") == allocations);
  for (size_t i = 0; i < want.size(); ++i) CHECK(on_host(got[i]).item<double>() == want[i]);
}

TEST_CASE("A step is copied while the step before computes", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  StepCopies copies(kFirst);
  for (int64_t number = 0; number < 2; ++number) {  // the buffers have their sizes
    GlobalStep step = step_of(number);
    copies.begin(step);
    copies.end();
  }
  GlobalStep computing = step_of(2), next = step_of(3);
  const Tensor ids = next.micro_batches.front().input_ids;
  std::promise<void> computed;
  const std::shared_future<void> end = computed.get_future().share();
  copies.begin(computing);
  const Tensor& read = computing.micro_batches.front().input_ids;
  null_device::enqueue_collective(
      c10::cuda::getCurrentCUDAStream().stream(), &copies,
      {.name = "a long step", .accesses = {{read.const_data_ptr(), read.nbytes(), false}}, .run = {}},
      [end](const std::atomic<bool>&) { end.wait(); });
  copies.end();
  copies.begin(next);
  const Tensor& there = next.micro_batches.front().input_ids;
  CHECK(std::memcmp(null_device::host_view(there.const_data_ptr()), ids.const_data_ptr(), ids.nbytes()) == 0);
  copies.end();
  computed.set_value();
}

TEST_CASE("Copies that do not arrive are found, and the stream that computes makes them from then on",
          "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  StepCopies copies(kFirst);
  const auto allocated_by = [&](int64_t number) {
    GlobalStep step = step_of(number);
    copies.begin(step);
    const Tensor ids = step.micro_batches.front().input_ids;
    copies.end();
    return ids.storage().nbytes() == ids.nbytes();  // in no common buffer
  };
  CHECK_FALSE(allocated_by(0));
  const std::string warning = warning_of([&] {
    const null_device::DryRun dry;  // nothing is copied
    allocated_by(1);
  });
  CHECK_THAT(warning, Contains("differ from what was read"));
  CHECK(allocated_by(2));
}

}  // namespace bert
