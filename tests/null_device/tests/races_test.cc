// Accesses that no event, no wait and no order of a stream separates.
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/mm.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "cuda_ext/ops.h"
#include "tests/null_device/tests/device_testing.h"

namespace bert {
namespace {

using at::Tensor;
using c10::cuda::CUDAStream;
using c10::cuda::CUDAStreamGuard;
using namespace testing;

constexpr int64_t kCount = 1000;

/// A tensor whose memory nobody uses, so that an order that is missing is the order of the lines that follow.
Tensor settled(int64_t count = kCount) {
  const Tensor tensor = filled(count, 0.0);
  cudaDeviceSynchronize();
  return tensor;
}

/// Two streams that nothing orders.
struct Streams {
  CUDAStream first = c10::cuda::getStreamFromPool(), second = c10::cuda::getStreamFromPool();
};

template <class Body>
void on(const CUDAStream& stream, const Body& body) {
  const CUDAStreamGuard guard(stream);
  body();
}

void wait_for(const CUDAStream& before, const CUDAStream& after) {
  at::cuda::CUDAEvent event;
  event.record(before);
  event.block(after);
}

}  // namespace

// With names that faults can show.
[[gnu::noinline]] void write_first(const Tensor& tensor) { tensor.fill_(1.0); }
[[gnu::noinline]] void write_second(const Tensor& tensor) { tensor.add_(1.0); }

TEST_CASE("Two writes on two streams that nothing orders are a race", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  const Streams streams;
  const Tensor x = settled();
  const int64_t before = null_device::count("race");
  const auto faults = faults_of([&] {
    on(streams.first, [&] { write_first(x); });
    on(streams.second, [&] { write_second(x); });
  });
  check_fault(faults, {"race: aten::add_.Tensor on " + number(streams.second) + " ",
                       " bytes that aten::fill_.Scalar on " + number(streams.first) + " has written",
                       "neither an event nor a wait orders them (byte 0 of a block of 4000 bytes)",
                       "bert::write_second(", "and the other at", "bert::write_first("});
  CHECK(null_device::count("race") - before == 1);
}

TEST_CASE("An event, a wait of the host, or a query orders two streams", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  const Streams streams;
  const Tensor x = settled();
  const auto faults_after = [&](const auto& order) {
    cudaDeviceSynchronize();
    return faults_of([&] {
      on(streams.first, [&] { write_first(x); });
      order();
      on(streams.second, [&] { write_second(x); });
    });
  };
  CHECK(faults_after([] {}).size() == 1);
  check_no_fault(faults_after([&] { wait_for(streams.first, streams.second); }));
  check_no_fault(faults_after([&] { streams.first.synchronize(); }));
  check_no_fault(faults_after([&] { CHECK(streams.first.query()); }));
  check_no_fault(faults_after([] { cudaDeviceSynchronize(); }));
  check_no_fault(faults_after([&] {
    at::cuda::CUDAEvent event;
    event.record(streams.first);
    event.synchronize();
  }));
  check_no_fault(faults_after([&] {
    at::cuda::CUDAEvent event;
    event.record(streams.first);
    CHECK_FALSE(event.query());  // the device is not that fast
    while (!event.query()) {
    }
  }));
  check_no_fault(faults_after([&] {  // over a third stream
    const CUDAStream third = c10::cuda::getStreamFromPool();
    wait_for(streams.first, third);
    wait_for(third, streams.second);
  }));
  cudaDeviceSynchronize();
  CHECK(on_host(x)[0].item<float>() == 2.0F);

  CHECK(faults_after([&] { streams.second.synchronize(); }).size() == 1);
  CHECK(faults_after([&] { wait_for(streams.second, streams.first); }).size() == 1);
  CHECK(faults_after([&] {
          at::cuda::CUDAEvent event;
          event.record(streams.first);
          event.query();  // once is too early
        }).size() == 1);
  CHECK(faults_after([&] {  // an event that was recorded too early
          at::cuda::CUDAEvent event;
          event.record(streams.second);
          event.block(streams.first);
          write_first(filled(1, 0.0));
          event.block(streams.second);
        })
            .size() == 1);
}

TEST_CASE("A read and a write race, two reads do not", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  const Streams streams;
  const Tensor x = settled();
  std::vector<Tensor> kept;
  const auto read = [&] { kept.push_back(x.mul(2.0)); };
  check_fault(faults_of([&] {
                on(streams.first, read);
                on(streams.second, [&] { write_first(x); });
              }),
              {"race: aten::fill_.Scalar on " + number(streams.second) + " writes bytes that aten::mul.Tensor on " +
               number(streams.first) + " has read"});
  check_fault(faults_of([&] { on(streams.first, read); }),
              {"race: aten::mul.Tensor on " + number(streams.first) + " reads bytes that aten::fill_.Scalar on " +
               number(streams.second) + " has written"});
  cudaDeviceSynchronize();
  check_no_fault(faults_of([&] {
    on(streams.first, read);
    on(streams.second, read);
  }));
}

TEST_CASE("Only bytes that both touch race, and a work is reported once", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  const Streams streams;
  constexpr int64_t kRows = 10;
  const Tensor x = settled(kRows * kRows).view({kRows, kRows});
  const auto faults_with = [&](const Tensor& first, const Tensor& second) {
    cudaDeviceSynchronize();
    return faults_of([&] {
      on(streams.first, [&] { write_first(first); });
      on(streams.second, [&] { write_second(second); });
    });
  };
  check_no_fault(faults_with(x.narrow(0, 0, 5), x.narrow(0, 5, 5)));
  check_no_fault(faults_with(x.narrow(1, 0, 5), x.narrow(1, 5, 5)));  // columns beside columns
  check_fault(faults_with(x.narrow(0, 0, 6), x.narrow(0, 5, 5)), {"byte 200 of a block of 400 bytes"});
  check_fault(faults_with(x.narrow(1, 0, 6), x.narrow(1, 5, 5)), {"byte 20 of a block of 400 bytes"});  // ten rows
  check_fault(faults_with(x, x), {"byte 0 of a block of 400 bytes"});
}

TEST_CASE("Products, copies and the project's kernels take part in races", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  const Streams streams;
  const Tensor a = settled(4).view({2, 2}), b = settled(4).view({2, 2});
  std::vector<Tensor> kept;
  check_fault(faults_of([&] {
                on(streams.first, [&] { write_first(a); });
                on(streams.second, [&] { kept.push_back(at::mm(a, b)); });
              }),
              {" on " + number(streams.second) + " reads bytes that aten::fill_.Scalar on " + number(streams.first)});
  cudaDeviceSynchronize();
  check_fault(faults_of([&] {
                on(streams.first, [&] { write_first(a); });
                on(streams.second, [&] { b.copy_(a); });
              }),
              {"race: copy on the device on " + number(streams.second) + " reads bytes that aten::fill_.Scalar"});
  cudaDeviceSynchronize();
  check_fault(
      faults_of([&] {
        on(streams.first, [&] { write_first(a); });
        on(streams.second, [&] { kept.push_back(ops::bias_gelu(a, a[0], ops::Gelu::kTanh)); });
      }),
      {"race: bert::bias_gelu (arguments) on " + number(streams.second) + " reads bytes that aten::fill_.Scalar"});
  cudaDeviceSynchronize();
  check_no_fault(faults_of([&] {
    on(streams.first, [&] { write_first(a); });
    wait_for(streams.first, streams.second);
    on(streams.second, [&] {
      kept.push_back(ops::bias_gelu(a, a[0], ops::Gelu::kTanh));
      b.copy_(a);
      kept.push_back(at::mm(a, b));
    });
  }));
}

TEST_CASE("Freed memory that another stream still uses is found, unless the stream was recorded",
          "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  constexpr int64_t kLarge = 3 << 20;  // a segment of its own
  const CUDAStream side = c10::cuda::getStreamFromPool();
  Tensor kept;
  const auto faults_when = [&](bool recorded, bool waited, bool& reused) {
    c10::cuda::CUDACachingAllocator::emptyCache();
    cudaDeviceSynchronize();
    return faults_of([&] {
      Tensor x = filled(kLarge, 1.0);
      const void* const place = x.const_data_ptr();
      wait_for(c10::cuda::getCurrentCUDAStream(), side);
      on(side, [&] { kept = x.mul(2.0); });
      if (recorded) x.record_stream(side);
      if (waited) side.synchronize();
      x = Tensor();
      const Tensor next = filled(kLarge, 3.0);
      reused = next.const_data_ptr() == place;
    });
  };
  bool reused = false;
  check_fault(faults_when(/*recorded=*/false, /*waited=*/false, reused),
              {"race: aten::fill_.Scalar on " + number(c10::cuda::getCurrentCUDAStream()),
               " writes bytes that aten::mul.Tensor on " + number(side) + " has read"});
  CHECK(reused);
  check_no_fault(faults_when(/*recorded=*/true, /*waited=*/false, reused));
  CHECK_FALSE(reused);
  check_no_fault(faults_when(/*recorded=*/false, /*waited=*/true, reused));
  CHECK(reused);
  kept = Tensor();
  cudaDeviceSynchronize();
  c10::cuda::CUDACachingAllocator::emptyCache();
}

TEST_CASE("The legacy stream and the blocking streams wait for each other, and other streams do not",
          "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  cudaStream_t raw_first = nullptr, raw_second = nullptr, raw_apart = nullptr;
  REQUIRE(cudaStreamCreateWithPriority(&raw_first, cudaStreamDefault, 0) == cudaSuccess);
  REQUIRE(cudaStreamCreateWithPriority(&raw_second, cudaStreamDefault, 0) == cudaSuccess);
  REQUIRE(cudaStreamCreateWithPriority(&raw_apart, cudaStreamNonBlocking, 0) == cudaSuccess);
  const CUDAStream first = c10::cuda::getStreamFromExternal(raw_first, 0);
  const CUDAStream second = c10::cuda::getStreamFromExternal(raw_second, 0);
  const CUDAStream apart = c10::cuda::getStreamFromExternal(raw_apart, 0);
  const CUDAStream legacy = c10::cuda::getDefaultCUDAStream();
  const Tensor x = settled(), other = settled();
  const auto faults_with = [&](const CUDAStream& one, const CUDAStream& two, const auto& between) {
    cudaDeviceSynchronize();
    return faults_of([&] {
      on(one, [&] { write_first(x); });
      between();
      on(two, [&] { write_second(x); });
    });
  };
  const auto nothing = [] {};
  check_no_fault(faults_with(legacy, first, nothing));
  check_no_fault(faults_with(first, legacy, nothing));
  check_no_fault(faults_with(first, second, [&] { on(legacy, [&] { write_first(other); }); }));
  check_no_fault(
      faults_with(first, apart, [&] { wait_for(legacy, apart); }));  // the event comes after blocking streams
  check_no_fault(faults_with(first, apart, [&] { legacy.synchronize(); }));
  check_no_fault(faults_with(apart, second, [&] { wait_for(apart, legacy); }));  // they wait with the legacy stream
  check_no_fault(faults_with(first, second, [&] { wait_for(apart, legacy); }));  // with any call, that is
  CHECK(faults_with(first, second, nothing).size() == 1);
  CHECK(faults_with(legacy, apart, nothing).size() == 1);
  CHECK(faults_with(apart, legacy, nothing).size() == 1);
  CHECK(faults_with(first, apart, [&] { wait_for(second, apart); }).size() == 1);
  cudaDeviceSynchronize();
  for (cudaStream_t stream : {raw_first, raw_second, raw_apart}) CHECK(cudaStreamDestroy(stream) == cudaSuccess);
  check_fault(faults_of([&] { cudaMemsetAsync(x.mutable_data_ptr<float>(), 0, 4, raw_apart); }),
              {"fill on stream ", ", which is destroyed"});
}

TEST_CASE("Streams of two devices are ordered by events of their device", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  const Tensor here = filled(kCount, 1.0), there = filled(kCount, 2.0, kSecond);
  const CUDAStream near = c10::cuda::getCurrentCUDAStream(0), far = c10::cuda::getStreamFromPool(false, 1);
  wait_for_devices();
  check_no_fault(faults_of([&] {  // LibTorch lets the devices wait for each other
    there.copy_(here, /*non_blocking=*/true);
    write_second(here);
    write_second(there);
  }));
  wait_for_devices();
  const CUDAStreamGuard guard(far);
  c10::cuda::set_device(0);
  const auto raw_copy = [&] {
    cudaMemcpyPeerAsync(there.mutable_data_ptr<float>(), 1, here.const_data_ptr<float>(), 0, here.nbytes(),
                        near.stream());
  };
  wait_for_devices();
  check_fault(faults_of([&] {
                write_second(there);
                raw_copy();
              }),
              {"race: copy between devices on " + number(near) + " writes bytes that aten::add_.Tensor on " +
               number(far) + " has written"});
  wait_for_devices();
  check_fault(faults_of([&] {
                {
                  const CUDAStreamGuard on_legacy(c10::cuda::getDefaultCUDAStream(1));
                  write_second(there);
                }
                c10::cuda::set_device(0);
                raw_copy();
              }),
              {"race: copy between devices on " + number(near)});  // each device has a legacy stream of its own
  wait_for_devices();
  check_fault(faults_of([&] {
                cudaEvent_t event = nullptr;
                cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
                CHECK(cudaEventRecord(event, far.stream()) == cudaErrorInvalidResourceHandle);
                cudaEventDestroy(event);
                cudaGetLastError();
              }),
              {"an event of device 0 is recorded on " + words(far)});
}

}  // namespace bert
