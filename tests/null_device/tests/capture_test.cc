// What CUDA forbids while a stream is captured is a fault and an error, and ends the capture.
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <thread>

#include "tests/null_device/tests/device_testing.h"

namespace bert {
namespace {

using at::Tensor;
using c10::cuda::CUDAStream;
using c10::cuda::CUDAStreamGuard;
using namespace testing;

/// A capture without LibTorch's part in it. Its stream is the current one.
class Capture {
 public:
  explicit Capture(cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    REQUIRE(cudaStreamBeginCapture(stream.stream(), mode) == cudaSuccess);
  }
  Capture(const Capture&) = delete;
  ~Capture() {
    cudaGraph_t graph = nullptr;
    if (goes_on_) cudaStreamEndCapture(stream.stream(), &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
  }
  cudaError_t end() {
    goes_on_ = false;
    cudaGraph_t graph = nullptr;
    const cudaError_t error = cudaStreamEndCapture(stream.stream(), &graph);
    CHECK((graph != nullptr) == (error == cudaSuccess));
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    return error;
  }

  const CUDAStream stream = c10::cuda::getStreamFromPool();

 private:
  const CUDAStreamGuard on_{stream};
  bool goes_on_ = true;
};

/// The call fails with this error and this fault, and the capture with it.
template <class Call>
void check_forbidden(const Call& call, cudaError_t error, const std::string& fault) {
  INFO(fault);
  Capture capture;
  cudaError_t got = cudaSuccess;
  check_fault(faults_of([&] { got = call(); }), {fault});
  CHECK(got == error);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(capture.stream.stream(), &status);
  CHECK(status == cudaStreamCaptureStatusInvalidated);
  CHECK(capture.end() == cudaErrorStreamCaptureInvalidated);
}

/// The same for a call of LibTorch, which throws.
template <class Call>
void check_forbidden_in_libtorch(const Call& call, const std::string& fault) {
  INFO(fault);
  Capture capture;
  std::string thrown;
  const auto faults = faults_of([&] {
    try {
      call();
    } catch (const c10::Error& error) {
      thrown = error.what_without_backtrace();
    }
  });
  CAPTURE(thrown);
  REQUIRE(!faults.empty());
  CHECK_THAT(faults.front(), Contains(fault));
  CHECK_THAT(thrown, Contains("operation not permitted when stream is capturing"));
  CHECK(capture.end() == cudaErrorStreamCaptureInvalidated);
}

template <class Call>
void check_allowed(const Call& call, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
  Capture capture(mode);
  check_no_fault(faults_of([&] { CHECK(call() == cudaSuccess); }));
  CHECK(capture.end() == cudaSuccess);
}

template <class Call>
cudaError_t on_another_thread(const Call& call) {
  cudaError_t error = cudaSuccess;
  std::thread([&] {
    error = call();
    cudaGetLastError();
  }).join();
  return error;
}

class Event {
 public:
  Event() { cudaEventCreateWithFlags(&event, cudaEventDisableTiming); }
  Event(const Event&) = delete;
  ~Event() { cudaEventDestroy(event); }
  cudaEvent_t event = nullptr;
};

}  // namespace

TEST_CASE("CUDA's functions that wait or allocate may not be called while a stream is captured",
          "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  const Tensor x = filled(4, 1.0);
  void* memory = nullptr;
  constexpr cudaError_t kUnsupported = cudaErrorStreamCaptureUnsupported;
  const auto current = [] { return c10::cuda::getCurrentCUDAStream().stream(); };
  check_forbidden([&] { return cudaMalloc(&memory, 64); }, kUnsupported, "cudaMalloc while a stream is captured");
  check_forbidden([&] { return cudaHostAlloc(&memory, 64, 0); }, kUnsupported, "cudaHostAlloc while a stream is");
  check_forbidden([] { return cudaDeviceSynchronize(); }, kUnsupported, "cudaDeviceSynchronize while a stream is");
  check_forbidden([&] { return cudaStreamSynchronize(current()); }, kUnsupported,
                  "cudaStreamSynchronize of a stream that is captured");
  check_forbidden([&] { return cudaStreamQuery(current()); }, kUnsupported,
                  "cudaStreamQuery of a stream that is captured");
  float number = 0.0F;
  const auto* const data = x.const_data_ptr<float>();
  check_forbidden([&] { return cudaMemcpy(&number, data, 4, cudaMemcpyDeviceToHost); }, kUnsupported,
                  "cudaMemcpy while a stream is captured");
  check_forbidden([&] { return cudaMemcpyAsync(&number, data, 4, cudaMemcpyDeviceToHost, current()); }, kUnsupported,
                  "a copy to pageable memory is captured");
  check_forbidden(
      [&] { return cudaMemcpyAsync(x.mutable_data_ptr<float>(), &number, 4, cudaMemcpyHostToDevice, current()); },
      kUnsupported, "a copy from pageable memory is captured");
  check_forbidden([&] { return cudaMemset(x.mutable_data_ptr<float>(), 0, 4); }, kUnsupported,
                  "cudaMemset while a stream is captured");
  void* freed = nullptr;
  REQUIRE(cudaMalloc(&freed, 64) == cudaSuccess);
  check_forbidden([&] { return cudaFree(freed); }, kUnsupported, "cudaFree while a stream is captured");
  CHECK(cudaFree(freed) == cudaSuccess);

  const Tensor source = pinned(4, 3.0);
  check_allowed([&] {
    return cudaMemcpyAsync(x.mutable_data_ptr<float>(), source.const_data_ptr<float>(), 16, cudaMemcpyHostToDevice,
                           current());
  });
  check_allowed([&] { return cudaMemsetAsync(x.mutable_data_ptr<float>(), 0, 16, current()); });
  CHECK(on_host(x)[0].item<float>() == 1.0F);  // captured work does not run
}

TEST_CASE("A capture in relaxed mode forbids less, and so do other threads outside of mode global",
          "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  void* memory = nullptr;
  const auto allocate = [&] {
    const cudaError_t error = cudaMalloc(&memory, 64);
    return error != cudaSuccess ? error : cudaFree(memory);
  };
  const auto elsewhere = [&] { return on_another_thread(allocate); };
  check_allowed(allocate, cudaStreamCaptureModeRelaxed);
  check_allowed(elsewhere, cudaStreamCaptureModeRelaxed);
  check_allowed(elsewhere, cudaStreamCaptureModeThreadLocal);
  check_forbidden(elsewhere, cudaErrorStreamCaptureUnsupported, "cudaMalloc while a stream is captured");
  check_allowed([&] {  // the other thread takes responsibility
    return on_another_thread([&] {
      cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
      cudaThreadExchangeStreamCaptureMode(&mode);
      return allocate();
    });
  });
  check_allowed([&] {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    const cudaError_t error = allocate();
    cudaThreadExchangeStreamCaptureMode(&mode);
    return error;
  });
}

TEST_CASE("Events are not queried while a stream is captured, and captured ones never", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  const Event before;
  REQUIRE(cudaEventRecord(before.event, c10::cuda::getCurrentCUDAStream().stream()) == cudaSuccess);
  const auto query = [&] {
    const cudaError_t error = cudaEventQuery(before.event);
    return error == cudaErrorNotReady ? cudaSuccess : error;
  };
  check_forbidden(query, cudaErrorStreamCaptureUnsupported, "cudaEventQuery while a stream is captured");
  check_forbidden([&] { return on_another_thread(query); }, cudaErrorStreamCaptureUnsupported,
                  "cudaEventQuery while a stream is captured");
  check_forbidden([&] { return cudaEventSynchronize(before.event); }, cudaErrorStreamCaptureUnsupported,
                  "cudaEventSynchronize while a stream is captured");
  check_allowed([&] { return on_another_thread(query); }, cudaStreamCaptureModeThreadLocal);
  check_allowed(query, cudaStreamCaptureModeRelaxed);
  check_allowed([&] {  // as LibTorch's watchdog does
    return on_another_thread([&] {
      cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
      cudaThreadExchangeStreamCaptureMode(&mode);
      return query();
    });
  });

  const Event inside;
  {
    Capture capture(cudaStreamCaptureModeRelaxed);
    REQUIRE(cudaEventRecord(inside.event, capture.stream.stream()) == cudaSuccess);
    check_fault(faults_of([&] { CHECK(cudaEventQuery(inside.event) == cudaErrorCapturedEvent); }),
                {"cudaEventQuery of an event that was recorded in a capture"});
    CHECK(capture.end() == cudaErrorStreamCaptureInvalidated);
  }
  check_fault(faults_of([&] { CHECK(cudaEventSynchronize(inside.event) == cudaErrorCapturedEvent); }),
              {"cudaEventSynchronize of an event that was recorded in a capture, which has ended"});
  check_fault(faults_of([&] {
                const CUDAStream other = c10::cuda::getStreamFromPool();
                CHECK(cudaStreamWaitEvent(other.stream(), inside.event, 0) == cudaErrorCapturedEvent);
              }),
              {"waits for an event that was recorded in a capture which has ended"});
  REQUIRE(cudaEventRecord(inside.event, c10::cuda::getCurrentCUDAStream().stream()) == cudaSuccess);
  check_no_fault(faults_of([&] { CHECK(cudaEventSynchronize(inside.event) == cudaSuccess); }));
  cudaGetLastError();
}

TEST_CASE("A capture is joined to nothing outside, and joins all that it forks to", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  const CUDAStream other = c10::cuda::getStreamFromPool();
  const Tensor x = filled(4, 1.0);
  wait_for_devices();
  const Event event, joined;
  REQUIRE(cudaEventRecord(event.event, other.stream()) == cudaSuccess);
  const auto current = [] { return c10::cuda::getCurrentCUDAStream().stream(); };
  const std::string outside = "waits for an event that was recorded outside of the capture";
  check_forbidden([&] { return cudaStreamWaitEvent(current(), event.event, 0); }, cudaErrorStreamCaptureIsolation,
                  outside);

  const auto fork = [&] {
    cudaEventRecord(event.event, current());
    return cudaStreamWaitEvent(other.stream(), event.event, 0);
  };
  const auto work = [&] { return cudaMemsetAsync(x.mutable_data_ptr<float>(), 0, 16, other.stream()); };
  {
    Capture capture;
    check_no_fault(faults_of([&] {
      fork();
      work();
    }));
    CHECK(null_device::is_capturing(other.stream()));
    check_fault(faults_of([&] { CHECK(capture.end() == cudaErrorStreamCaptureUnjoined); }),
                {"the capture ends before its stream has waited for all that it forked to"});
    CHECK_FALSE(null_device::is_capturing(other.stream()));
  }
  check_allowed([&] {
    fork();
    work();
    cudaEventRecord(joined.event, other.stream());
    return cudaStreamWaitEvent(current(), joined.event, 0);
  });
  check_forbidden(
      [&] {
        fork();
        cudaEventRecord(joined.event, other.stream());
        return cudaStreamWaitEvent(c10::cuda::getDefaultCUDAStream().stream(), joined.event, 0);
      },
      cudaErrorStreamCaptureImplicit, "the legacy stream waits for an event that was recorded in a capture");
  {
    Capture first;
    cudaEventRecord(event.event, first.stream.stream());
    Capture second;
    check_fault(faults_of([&] {
                  CHECK(cudaStreamWaitEvent(second.stream.stream(), event.event, 0) == cudaErrorStreamCaptureMerge);
                }),
                {number(second.stream) + " waits for an event that was recorded in another capture than its own"});
  }
  cudaGetLastError();
}

TEST_CASE("The legacy stream is not captured, nor used beside a captured stream that blocks", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  const Tensor x = filled(4, 1.0), there = filled(4, 1.0, kSecond);
  const auto work = [&] { return cudaMemsetAsync(x.mutable_data_ptr<float>(), 0, 16, nullptr); };
  check_fault(
      faults_of([] {
        CHECK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal) == cudaErrorStreamCaptureUnsupported);
      }),
      {"a capture of the legacy stream"});
  check_allowed(work);  // LibTorch's streams do not block

  cudaStream_t blocking = nullptr;
  REQUIRE(cudaStreamCreateWithPriority(&blocking, cudaStreamDefault, 0) == cudaSuccess);
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeGlobal) == cudaSuccess);
  check_no_fault(faults_of([&] {  // another device
    const c10::cuda::CUDAGuard second(kSecond);
    CHECK(cudaMemsetAsync(there.mutable_data_ptr<float>(), 0, 16, nullptr) == cudaSuccess);
  }));
  check_fault(faults_of([&] { work(); }), {"fill on the legacy stream while a blocking stream is captured"});
  CHECK(cudaStreamEndCapture(blocking, &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaStreamDestroy(blocking) == cudaSuccess);
  cudaGetLastError();
}

TEST_CASE("A capture ends on the thread and the stream that it began on", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  cudaGraph_t graph = nullptr;
  {
    Capture capture;
    CHECK(cudaStreamEndCapture(c10::cuda::getStreamFromPool().stream(), &graph) == cudaErrorStreamCaptureUnmatched);
    check_fault(faults_of([&] {
                  CHECK(on_another_thread([&] { return cudaStreamEndCapture(capture.stream.stream(), &graph); }) ==
                        cudaErrorStreamCaptureWrongThread);
                }),
                {"a capture ends on another thread than it began on"});
  }
  Capture relaxed(cudaStreamCaptureModeRelaxed);
  CHECK(on_another_thread([&] { return relaxed.end(); }) == cudaSuccess);
}

TEST_CASE("LibTorch's calls that wait or copy from pageable memory end a capture", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  const Tensor x = filled(4, 1.0), on_cpu = at::full({4}, 1.0), mask = x.gt(0.0);
  const Tensor indices = at::zeros({1}, x.options().dtype(at::kLong));
  wait_for_devices();
  const std::string of_captured = "cudaStreamSynchronize of a stream that is captured";
  check_forbidden_in_libtorch([&] { x[0].item<float>(); }, "");
  check_forbidden_in_libtorch([&] { x.nonzero(); }, of_captured);
  check_forbidden_in_libtorch([&] { x.masked_select(mask); }, of_captured);
  check_forbidden_in_libtorch([&] { x.index({mask}); }, of_captured);
  check_forbidden_in_libtorch([&] { x.equal(x); }, of_captured);
  check_forbidden_in_libtorch([] { c10::cuda::getCurrentCUDAStream().synchronize(); }, of_captured);
  check_forbidden_in_libtorch([] { c10::cuda::device_synchronize(); }, "cudaDeviceSynchronize while a stream is");
  {
    Capture capture;  // LibTorch refuses some calls itself
    CHECK_THROWS_WITH(on_host(x), Contains("unless the CPU tensor is pinned"));
    CHECK_THROWS_WITH(x.copy_(on_cpu), Contains("unless the CPU tensor is pinned"));
  }
  check_allowed([&] {
    x.mul(2.0).add_(x).index_fill_(0, indices, 0.0);
    return cudaSuccess;
  });
}

TEST_CASE("A cold allocator ends the capture of another thread", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  constexpr int64_t kLarge = 7 << 20;
  const auto allocate = [] { at::empty({kLarge}, at::TensorOptions().dtype(at::kFloat).device(kFirst)); };
  const auto elsewhere = [&] {
    return on_another_thread([&] {
      try {
        allocate();
        return cudaSuccess;
      } catch (const c10::Error&) {
        return cudaErrorStreamCaptureUnsupported;
      }
    });
  };
  const auto allocate_here = [&] {
    allocate();
    return cudaSuccess;
  };
  c10::cuda::CUDACachingAllocator::emptyCache();
  check_forbidden(elsewhere, cudaErrorStreamCaptureUnsupported, "cudaMalloc while a stream is captured");
  check_allowed(allocate_here);  // LibTorch's allocator allows itself to
  allocate();
  check_allowed(elsewhere);  // it is warm now
  c10::cuda::CUDACachingAllocator::emptyCache();
}

}  // namespace bert
