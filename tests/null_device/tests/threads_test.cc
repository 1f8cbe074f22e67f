// Several threads use the device: LibTorch's threads of backward, a thread that loads, threads that share a stream.
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/mm.h>

#include <atomic>
#include <future>
#include <thread>

#include "tests/null_device/tests/device_testing.h"

namespace bert {
namespace {

using at::Tensor;
using c10::cuda::CUDAStream;
using c10::cuda::CUDAStreamGuard;
using namespace testing;

template <class Body>
void on_threads(int count, const Body& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("Threads on streams of their own do not disturb each other", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  constexpr int kThreads = 4, kSteps = 50;
  std::array<float, kThreads> results{};
  check_no_fault(faults_of([&] {
    on_threads(kThreads, [&](int thread) {
      const c10::Device device = thread % 2 == 0 ? kFirst : kSecond;
      const c10::cuda::CUDAGuard guard(device);
      const CUDAStreamGuard on(c10::cuda::getStreamFromPool(false, device.index()));
      Tensor x = filled(64, thread, device).view({8, 8}), y;
      for (int i = 0; i < kSteps; ++i) {
        y = at::mm(x, x).mul(0.0);  // new blocks all the time
        x = x.add(y).add(1.0);
      }
      results.at(static_cast<size_t>(thread)) = on_host(x)[0][0].item<float>();
    });
  }));
  for (int thread = 0; thread < kThreads; ++thread)
    CHECK(results.at(static_cast<size_t>(thread)) == static_cast<float>(thread + kSteps));
}

TEST_CASE("Work of one stream runs one after another, whichever threads queue it", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  constexpr int kThreads = 4, kSteps = 50;
  const Tensor x = filled(20000, 0.0);
  const CUDAStream stream = c10::cuda::getStreamFromPool();
  wait_for_devices();
  check_no_fault(faults_of([&] {
    on_threads(kThreads, [&](int) {
      const CUDAStreamGuard on(stream);
      for (int i = 0; i < kSteps; ++i) x.add_(1.0);
    });
  }));
  stream.synchronize();
  CHECK(on_host(x).eq(kThreads * kSteps).all().item<bool>());
}

TEST_CASE("An event comes after the work that another thread's stream still runs", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  const Tensor x = filled(4, 1.0);
  const CUDAStream first = c10::cuda::getStreamFromPool(), second = c10::cuda::getStreamFromPool();
  wait_for_devices();
  std::promise<void> begun;
  std::thread queues([&] {
    null_device::enqueue(
        first.stream(),
        {.name = "slow work", .accesses = {{x.const_data_ptr(), x.nbytes(), true}}, .opens_memory = false, .run = [&] {
           begun.set_value();
           std::this_thread::sleep_for(std::chrono::milliseconds(50));
           *null_device::host_view_of(x.mutable_data_ptr<float>()) = 7.0F;
         }});
  });
  begun.get_future().wait();
  at::cuda::CUDAEvent event;
  event.record(first);
  event.block(second);
  {
    const CUDAStreamGuard on(second);
    CHECK(on_host(x)[0].item<float>() == 7.0F);
  }
  queues.join();
}

TEST_CASE("Backward on LibTorch's threads follows the streams of forward", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  const auto gradients = [](c10::Device device) {
    Tensor x = at::arange(1, 17, at::kFloat).view({4, 4}).div(10.0).to(device).requires_grad_();
    Tensor weight = at::arange(16, at::kFloat).view({4, 4}).div(7.0).to(device).requires_grad_();
    const Tensor inputs = x.mul(2.0), weights = weight.mul(3.0);  // only the current stream uses the parameters
    const Tensor right = inputs.mul(weights).sigmoid();
    Tensor left;
    if (device.is_cuda()) {
      const CUDAStream main = c10::cuda::getCurrentCUDAStream(), side = c10::cuda::getStreamFromPool();
      at::cuda::CUDAEvent begin, end;
      begin.record(main);
      begin.block(side);
      {
        const CUDAStreamGuard on(side);
        left = at::mm(inputs, weights).tanh();
      }
      end.record(side);
      end.block(main);
    } else {
      left = at::mm(inputs, weights).tanh();
    }
    left.mul(right).sum().backward();
    return std::vector<Tensor>{on_host(x.grad()), on_host(weight.grad())};
  };
  std::vector<Tensor> got;
  check_no_fault(faults_of([&] { got = gradients(kFirst); }));
  const std::vector<Tensor> want = gradients(c10::kCPU);
  for (size_t i = 0; i < want.size(); ++i) CHECK(got.at(i).allclose(want[i], kFloat.relative, kFloat.absolute));
}

TEST_CASE("A thread that loads hands its copies over by events", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  constexpr int kBatches = 20;
  constexpr int64_t kCount = 1000;
  struct Batch {
    Tensor tensor;
    at::cuda::CUDAEvent copied;
  };
  const CUDAStream copies = c10::cuda::getStreamFromPool();
  const auto sum_of_batches = [&](bool waits) {
    double sum = 0.0;
    std::array<std::promise<Batch>, kBatches> batches;
    std::thread loader([&] {
      for (int i = 0; i < kBatches; ++i) {
        const CUDAStreamGuard on(copies);
        Batch batch{.tensor = pinned(kCount, i).to(kFirst, /*non_blocking=*/true), .copied = {}};
        batch.copied.record(copies);
        batches.at(static_cast<size_t>(i)).set_value(std::move(batch));
      }
    });
    for (std::promise<Batch>& next : batches) {
      Batch batch = next.get_future().get();
      const CUDAStream own = c10::cuda::getCurrentCUDAStream();
      if (waits) batch.copied.block(own);
      batch.tensor.record_stream(own);
      sum += on_host(batch.tensor.mean()).item<double>();
    }
    loader.join();
    return sum;
  };
  check_no_fault(faults_of([&] { CHECK(sum_of_batches(true) == kBatches * (kBatches - 1) / 2.0); }));
  const auto faults = faults_of([&] { sum_of_batches(false); });
  REQUIRE(!faults.empty());
  CHECK_THAT(faults.front(),
             Contains("reads bytes that copy from pinned memory on " + number(copies) + " has written"));
}

}  // namespace bert
