// Copies from and to the host: pinned memory that is used too early, and what is counted.
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/nonzero.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "tests/null_device/tests/device_testing.h"

namespace bert {
namespace {

using at::Tensor;
using c10::cuda::CUDAStream;
using namespace testing;

constexpr int64_t kCount = 1000;

Tensor to_device(const Tensor& tensor) { return tensor.to(kFirst, /*non_blocking=*/true); }
CUDAStream current() { return c10::cuda::getCurrentCUDAStream(); }

/// The counts of some lines, without the zeros.
template <class Body>
std::map<std::string, int64_t> counts_of(const Body& body) {
  static const std::vector<std::string> kNames = {"wait",
                                                  "allocation",
                                                  "host allocation",
                                                  "pageable to device",
                                                  "pinned to device",
                                                  "device to pageable",
                                                  "device to pinned",
                                                  "device to device",
                                                  "product"};
  std::map<std::string, int64_t> counts;
  for (const std::string& name : kNames) counts[name] = -null_device::count(name);
  body();
  for (const std::string& name : kNames) {
    if ((counts[name] += null_device::count(name)) == 0) counts.erase(name);
  }
  return counts;
}
using Counts = std::map<std::string, int64_t>;

}  // namespace

// With names that faults can show.
[[gnu::noinline]] Tensor start_copy(const Tensor& source) { return to_device(source); }
[[gnu::noinline]] void wait_for_copy() { current().synchronize(); }

TEST_CASE("Pinned memory that changes before its copy is known to have run is found at the wait",
          "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  wait_for_devices();
  Tensor source = pinned(kCount, 1.0), copied;
  check_no_fault(faults_of([&] { copied = start_copy(source); }));
  source[kCount - 1] = 2.0;
  check_fault(faults_of([&] { wait_for_copy(); }),
              {"the host has changed pinned memory (4000 bytes) before it knew that the copy from it on " +
                   number(current()) + " had run",
               "bert::wait_for_copy(", "and the other at", "bert::start_copy("});
  check_no_fault(faults_of([&] {  // said once
    wait_for_copy();
    cudaDeviceSynchronize();
  }));

  check_no_fault(faults_of([&] {
    copied = start_copy(source);
    wait_for_copy();
    source.fill_(3.0);  // after the wait
    wait_for_copy();
  }));
  CHECK(on_host(copied)[0].item<float>() == 1.0F);
  check_no_fault(faults_of([&] {
    copied = start_copy(source);
    at::cuda::CUDAEvent event;
    event.record(current());
    while (!event.query()) {
    }
    source.fill_(4.0);  // after the event
    wait_for_copy();
  }));
  CHECK(on_host(copied)[0].item<float>() == 3.0F);
  check_no_fault(faults_of([&] {  // a synchronous copy
    copied = source.to(kFirst);
    source.fill_(5.0);
    wait_for_copy();
  }));
  check_fault(faults_of([&] {  // an event that was recorded before the copy
                at::cuda::CUDAEvent event;
                event.record(current());
                copied = start_copy(source);
                event.synchronize();
                source.fill_(6.0);
                wait_for_copy();
              }),
              {"the host has changed pinned memory"});
}

TEST_CASE("A result in pinned memory is NaN until the host has waited", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  const Tensor value = filled(kCount, 7.0);
  Tensor result = pinned(kCount, 0.0);
  const auto read = [&] { return result[kCount - 1].item<float>(); };
  const auto is_nan = [&] { return result.isnan().all().item<bool>(); };
  result.copy_(value, /*non_blocking=*/true);
  CHECK(is_nan());
  current().synchronize();
  CHECK(read() == 7.0F);

  value.fill_(8.0);
  at::cuda::CUDAEvent early, late;
  early.record(current());
  result.copy_(value, /*non_blocking=*/true);
  late.record(current());
  early.synchronize();
  CHECK(is_nan());
  late.synchronize();
  CHECK(read() == 8.0F);

  value.fill_(9.0);
  result.copy_(value, /*non_blocking=*/true);
  c10::cuda::getStreamFromPool().synchronize();  // another one
  CHECK(is_nan());
  CHECK(current().query());
  CHECK(read() == 9.0F);
}

TEST_CASE("Copies on one stream hand over pinned memory, and copies on two race for it", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  const Tensor first = filled(kCount, 1.0), second = filled(kCount, 2.0);
  Tensor buffer = pinned(kCount, 0.0), back;
  wait_for_devices();
  const auto there_and_back = [&](const Tensor& value, const CUDAStream& there, const CUDAStream& and_back) {
    return faults_of([&] {
      const c10::cuda::CUDAStreamGuard on(there);
      buffer.copy_(value, /*non_blocking=*/true);
      const c10::cuda::CUDAStreamGuard then(and_back);
      back = to_device(buffer);
    });
  };
  check_no_fault(there_and_back(first, current(), current()));
  check_no_fault(there_and_back(second, current(), current()));  // the copy from the buffer comes before
  CHECK(on_host(back)[0].item<float>() == 2.0F);
  wait_for_devices();
  const CUDAStream side = c10::cuda::getStreamFromPool();
  check_fault(
      there_and_back(first, current(), side),
      {"race: a copy on " + number(side) + " reads pinned memory that a copy on " + number(current()) + " writes"});
  wait_for_devices();
  check_fault(
      faults_of([&] {
        back = to_device(buffer);
        const c10::cuda::CUDAStreamGuard on(side);
        buffer.copy_(first, /*non_blocking=*/true);
      }),
      {"race: a copy on " + number(side) + " writes pinned memory that a copy on " + number(current()) + " reads"});
}

TEST_CASE("Pinned memory is not freed under a copy", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  Tensor target = filled(kCount, 0.0);
  void* memory = nullptr;
  const size_t bytes = target.nbytes();
  const auto start = [&] {
    CHECK(cudaMemcpyAsync(target.mutable_data_ptr<float>(), memory, bytes, cudaMemcpyHostToDevice,
                          current().stream()) == cudaSuccess);
  };
  REQUIRE(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault) == cudaSuccess);
  start();
  check_no_fault(faults_of([&] {
    current().synchronize();
    CHECK(cudaFreeHost(memory) == cudaSuccess);
  }));
  std::vector<char> own(bytes);
  memory = own.data();
  REQUIRE(cudaHostRegister(memory, bytes, cudaHostRegisterDefault) == cudaSuccess);
  start();
  check_fault(faults_of([&] { CHECK(cudaHostUnregister(memory) == cudaSuccess); }),
              {"cudaHostUnregister of memory that a copy on " + number(current()) + " may still use", "the other at"});
  current().synchronize();

  const Ended ended = run_in_fork([&] {
    cudaHostAlloc(&memory, bytes, cudaHostAllocDefault);
    start();
    cudaFreeHost(memory);
  });
  CHECK(ended.signal == SIGABRT);
  CHECK_THAT(ended.errors, Contains("cudaFreeHost of memory that a copy on " + number(current()) + " may still use"));
}

TEST_CASE("LibTorch keeps the pinned memory of a tensor that is freed under a copy", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  wait_for_devices();
  constexpr int64_t kOwn = 12345;  // no other test has pinned memory of this size
  Tensor source = pinned(kOwn, 1.0), copied;
  const void* const place = source.const_data_ptr();
  check_no_fault(faults_of([&] {
    copied = to_device(source);
    source = Tensor();
    const Tensor next = pinned(kOwn, 2.0);
    CHECK(next.const_data_ptr() != place);
    current().synchronize();
    CHECK(on_host(copied)[0].item<float>() == 1.0F);
  }));
  bool used_again = false;
  std::vector<Tensor> kept;
  for (int i = 0; i < 8 && !used_again; ++i) {
    kept.push_back(pinned(kOwn, 3.0));
    used_again = kept.back().const_data_ptr() == place;
  }
  CHECK(used_again);
}

TEST_CASE("Copies and waits are counted by what they are", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  const Tensor on_cpu = at::full({kCount}, 1.0), in_pinned = pinned(kCount, 1.0);
  Tensor x = filled(kCount, 1.0), y = filled(kCount, 2.0), pinned_result = pinned(kCount, 0.0);
  CHECK(counts_of([&] { x.copy_(on_cpu); }) == Counts{{"pageable to device", 1}, {"wait", 1}});
  CHECK(counts_of([&] { x.copy_(on_cpu, true); }) == Counts{{"pageable to device", 1}});
  CHECK(counts_of([&] { x.copy_(in_pinned); }) == Counts{{"pinned to device", 1}, {"wait", 1}});
  CHECK(counts_of([&] { x.copy_(in_pinned, true); }) == Counts{{"pinned to device", 1}});
  CHECK(counts_of([&] { pinned_result.copy_(x, true); }) == Counts{{"device to pinned", 1}});
  CHECK(counts_of([&] { pinned_result.copy_(x); }) == Counts{{"device to pinned", 1}, {"wait", 1}});
  CHECK(counts_of([&] { x.copy_(y); }) == Counts{{"device to device", 1}});
  const Counts to_pageable = counts_of([&] { Tensor(on_cpu.clone()).copy_(x); });
  CHECK(to_pageable.at("device to pageable") == 1);
  CHECK(to_pageable.at("wait") >= 1);
  CHECK(counts_of([&] { x.mul_(y).add_(1.0); }) == Counts{});
  const Counts number = counts_of([&] { x[0].item<float>(); });
  CHECK(number.at("wait") >= 1);
  CHECK(counts_of([&] { at::nonzero(x); }).at("wait") >= 1);  // its size is a result
  CHECK(counts_of([&] { current().synchronize(); }) == Counts{{"wait", 1}});
  CHECK(counts_of([&] { cudaDeviceSynchronize(); }) == Counts{{"wait", 1}});
  CHECK(counts_of([&] { current().query(); }) == Counts{});
  CHECK(counts_of([&] {
          at::cuda::CUDAEvent event;
          event.record(current());
          event.query();
          event.synchronize();
        }) == Counts{{"wait", 1}});
}

TEST_CASE("Allocations, launches and products are counted", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  constexpr int64_t kLarge = 5 << 20;
  c10::cuda::CUDACachingAllocator::emptyCache();
  const auto allocate = [] { at::empty({kLarge}, at::TensorOptions().dtype(at::kFloat).device(kFirst)); };
  CHECK(counts_of(allocate) == Counts{{"allocation", 1}});
  CHECK(counts_of(allocate) == Counts{});
  c10::cuda::CUDACachingAllocator::emptyCache();
  CHECK(counts_of(allocate) == Counts{{"allocation", 1}});
  c10::cuda::CUDACachingAllocator::emptyCache();

  const Tensor a = filled(4, 1.0).view({2, 2});
  at::mm(a, a);  // makes a handle and its workspace
  CHECK(counts_of([&] { at::mm(a, a); }) == Counts{{"product", 1}});
  const int64_t launches = null_device::count("launch"), calls = null_device::count("cudaMemsetAsync");
  a.mul(2.0).add_(1.0);
  CHECK(null_device::count("launch") - launches == 2);
  cudaMemsetAsync(a.mutable_data_ptr<float>(), 0, 4, current().stream());
  CHECK(null_device::count("cudaMemsetAsync") - calls == 1);
  CHECK(null_device::count("launch") - launches == 2);
}

}  // namespace bert
