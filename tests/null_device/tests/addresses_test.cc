// What the device finds about memory: host code in device memory, kernels with wrong memory or on a wrong stream, tensors
// of other devices, and bytes outside of blocks.
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cublas_v2.h>

#include "cuda_ext/ops.h"
#include "tests/null_device/tests/device_testing.h"

#define BERT_KERNEL_BUILD emulated
#include "cuda_ext/kernels/bias_gelu.h"

namespace bert {
namespace {

using at::Tensor;
using namespace testing;

constexpr int64_t kColumns = 8;

/// Launches y = gelu(x + bias) of one row.
void launch_bias_gelu(const float* x, const float* bias, float* y, cudaStream_t stream) {
  kernels::bias_gelu_forward<float, float>(
      {.rows = 1, .columns = kColumns, .tanh = false, .x = x, .bias = bias, .y = y}, stream);
}

cudaStream_t current_stream() { return c10::cuda::getCurrentCUDAStream().stream(); }

volatile float sink = 0.0F;

}  // namespace

// With names that faults can show.
[[gnu::noinline]] float read_by_host(const Tensor& tensor) { return *tensor.const_data_ptr<float>(); }
[[gnu::noinline]] void write_by_host(const Tensor& tensor) { tensor.mutable_data_ptr<float>()[1] = 1.0F; }

TEST_CASE("Host code that touches device memory ends the process with a sentence", "[cuda][null_device]") {
  const Tensor tensor = filled(100, 1.0);
  c10::cuda::getCurrentCUDAStream().synchronize();
  const Ended reads = run_in_fork([&] { sink = read_by_host(tensor); });
  CHECK(reads.signal == SIGABRT);
  CHECK_THAT(reads.errors, Contains("null device: host code touches device memory: byte 0 of a block of 400 bytes of "
                                    "device 0") &&
                               Contains("bert::read_by_host("));
  const Ended writes = run_in_fork([&] { write_by_host(filled(100, 1.0, kSecond)); });
  CHECK(writes.signal == SIGABRT);
  CHECK_THAT(writes.errors, Contains("byte 4 of a block of 400 bytes of device 1") && Contains("bert::write_by_host("));
  const Ended collected = run_in_fork([&] {
    const null_device::FaultCollector collector;
    sink = read_by_host(tensor);
  });
  CHECK(collected.signal == SIGABRT);
  CHECK_THAT(collected.errors, Contains("host code touches device memory"));

  const Ended right = run_in_fork([&] { sink = read_by_host(on_host(tensor)) + read_by_host(pinned(4, 1.0)); });
  CHECK(right.signal == 0);
  CHECK(right.code == 0);
  CHECK(right.errors == "");
}

TEST_CASE("A segmentation fault elsewhere is no matter of the device", "[cuda][null_device]") {
  filled(1, 1.0);
  const Ended ended = run_in_fork([] {
    std::signal(SIGSEGV, SIG_DFL);
    filled(1, 1.0);  // work looks after the handler of signals
    sink = *reinterpret_cast<volatile float*>(sizeof(float));
  });
  CHECK(ended.signal == SIGSEGV);
  CHECK(ended.errors == "");
}

TEST_CASE("A kernel takes memory of the current device, or pinned memory", "[cuda][null_device]") {
  const Tensor x = filled(kColumns, 0.5), bias = filled(kColumns, 0.0), other = filled(kColumns, 0.0, kSecond);
  const Tensor on_cpu = at::full({kColumns}, 0.5), pinned_x = pinned(kColumns, 0.5);
  Tensor y = filled(kColumns, 0.0);
  const auto launch_with = [&](const Tensor& first) {
    return faults_of([&] {
      launch_bias_gelu(first.const_data_ptr<float>(), bias.const_data_ptr<float>(), y.mutable_data_ptr<float>(),
                       current_stream());
    });
  };
  const std::string on = " on " + words(c10::cuda::getCurrentCUDAStream()) + " got ";
  const std::string kernel = "BiasGeluForward<float, float>";
  check_fault(launch_with(on_cpu), {"kernel ", kernel, on + "memory of the host", "bert::kernels::"});
  check_fault(launch_with(other), {"kernel ", kernel, on + "memory of device 1 on device 0"});

  check_no_fault(launch_with(x));
  constexpr double kGelu = 0.34573123063700656;  // 0.5 * normal_cdf(0.5)
  CHECK(on_host(y)[0].item<double>() == Approx(kGelu).epsilon(1e-6));
  y.zero_();
  check_no_fault(launch_with(pinned_x));
  CHECK(on_host(y)[0].item<double>() == Approx(kGelu).epsilon(1e-6));

  const c10::cuda::CUDAGuard guard(kSecond);
  const Tensor far_x = filled(kColumns, 0.5, kSecond);
  check_no_fault(faults_of([&] {
    launch_bias_gelu(far_x.const_data_ptr<float>(), far_x.const_data_ptr<float>(), other.mutable_data_ptr<float>(),
                     current_stream());
  }));
}

TEST_CASE("A kernel is launched on the current stream of the current device", "[cuda][null_device]") {
  const Tensor x = filled(kColumns, 0.5), y = filled(kColumns, 0.0);
  const auto launch_on = [&](cudaStream_t stream) {
    return faults_of([&] {
      launch_bias_gelu(x.const_data_ptr<float>(), x.const_data_ptr<float>(), y.mutable_data_ptr<float>(), stream);
    });
  };
  const WaitAtEnd wait_at_end;
  const c10::cuda::CUDAStream current = c10::cuda::getCurrentCUDAStream(), side = c10::cuda::getStreamFromPool();
  check_fault(launch_on(side.stream()),
              {"kernel ", "BiasGeluForward", " is launched on " + words(side), "current one", "is " + words(current)});
  check_no_fault(launch_on(current.stream()));
  {
    const c10::cuda::CUDAStreamGuard on(side);
    check_no_fault(launch_on(side.stream()));
  }
  const c10::cuda::CUDAGuard second(kSecond);
  const std::vector<std::string> faults = launch_on(side.stream());
  REQUIRE(!faults.empty());
  CHECK_THAT(faults.front(), Contains("memory of device 0 on device 1"));
  CHECK_THAT(faults.back(), Contains("is launched on " + words(side) + ", and the current device is 1"));
}

TEST_CASE("An operator gets tensors of one device", "[cuda][null_device]") {
  const Tensor here = filled(4, 1.0), there = filled(4, 2.0, kSecond), scalar = at::full({}, 3.0);
  const auto thrown_by = [](const auto& body) {
    std::string text;
    const auto faults = faults_of([&] {
      try {
        body();
      } catch (const c10::Error& error) {
        text = error.what_without_backtrace();
      }
    });
    CHECK_THAT(text, Contains("same device"));
    return faults;
  };
  check_fault(thrown_by([&] { at::add(here, there); }),
              {"aten::add.Tensor on cuda:0 got a tensor of cuda:1 (argument other)"});
  check_fault(thrown_by([&] { at::add(there, here); }),
              {"aten::add.Tensor on cuda:1 got a tensor of cuda:0 (argument other)"});
  thrown_by([&] { at::add(here, at::full({4}, 1.0)); });
  thrown_by([&] { at::mm(here.view({2, 2}), there.view({2, 2})); });
  thrown_by([&] { at::cat({here, there}); });

  check_no_fault(faults_of([&] {  // on another device than the current one, and with a number of the host
    CHECK(on_host(at::add(there, there))[0].item<float>() == 4.0F);
    CHECK(on_host(at::add(there, scalar))[0].item<float>() == 5.0F);
    CHECK(on_host(at::mm(there.view({2, 2}), there.view({2, 2})))[0][0].item<float>() == 8.0F);
    CHECK(on_host(at::cat({there, there})).sum().item<float>() == 16.0F);
    CHECK(on_host(here.to(kSecond).add(there))[0].item<float>() == 3.0F);
    CHECK(on_host(ops::bias_gelu(there.view({1, 4}), there, ops::Gelu::kErf)).numel() == 4);
  }));
}

TEST_CASE("A product uses memory of its stream's device", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  const Tensor here = filled(4, 1.0), there = filled(4, 2.0, kSecond), workspace = filled(1 << 10, 0.0);
  wait_for_devices();
  cublasHandle_t handle = nullptr;
  REQUIRE(cublasCreate_v2(&handle) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cublasSetStream_v2(handle, current_stream()) == CUBLAS_STATUS_SUCCESS);
  const auto multiply_with = [&](const Tensor& matrix) {
    return faults_of([&] {
      const float one = 1.0F, zero = 0.0F;
      const Tensor result = filled(4, 0.0);
      cublasSgemm_v2(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, matrix.const_data_ptr<float>(), 2,
                     here.const_data_ptr<float>(), 2, &zero, result.mutable_data_ptr<float>(), 2);
    });
  };
  check_fault(multiply_with(here), {"cublasSgemm: the handle has no workspace"});
  REQUIRE(cublasSetWorkspace_v2(handle, workspace.mutable_data_ptr<float>(), workspace.nbytes()) ==
          CUBLAS_STATUS_SUCCESS);
  check_fault(multiply_with(there),
              {"cublasSgemm on " + words(c10::cuda::getCurrentCUDAStream()), " uses memory of device 1"});
  check_no_fault(multiply_with(here));
  cublasDestroy_v2(handle);
}

TEST_CASE("Work on bytes outside of a block is found", "[cuda][null_device]") {
  constexpr size_t kBytes = 4000;
  Tensor block = filled(kBytes / sizeof(float), 1.0);
  float* const data = block.mutable_data_ptr<float>();
  const auto fill = [&](void* begin, size_t bytes) {
    return faults_of([&] { CHECK(cudaMemsetAsync(begin, 0, bytes, current_stream()) == cudaSuccess); });
  };
  check_no_fault(fill(data, kBytes));
  check_no_fault(fill(data + 1, kBytes - sizeof(float)));
  check_fault(fill(data, kBytes + 1), {"fill writes 1 bytes beyond a block of 4000 bytes"});
  check_fault(faults_of([&] {
                std::vector<char> target(kBytes);
                cudaMemcpyAsync(target.data(), data + 2, kBytes, cudaMemcpyDeviceToHost, current_stream());
              }),
              {"copy to pageable memory reads 8 bytes beyond a block of 4000 bytes"});
  const Tensor view = block.slice(0, 1);
  block = Tensor();
  check_no_fault(fill(data, kBytes));  // the view keeps it
}

TEST_CASE("Work on memory that was freed is found", "[cuda][null_device]") {
  constexpr size_t kBytes = 4000;
  Tensor block = filled(kBytes / sizeof(float), 1.0);
  const Tensor y = filled(kColumns, 0.0);
  float* const data = block.mutable_data_ptr<float>();
  const auto work = [&] {
    return faults_of([&] { CHECK(cudaMemsetAsync(data, 0, kBytes, current_stream()) == cudaSuccess); });
  };
  const auto kernel = [&] {
    return faults_of([&] { launch_bias_gelu(data, data, y.mutable_data_ptr<float>(), current_stream()); });
  };
  check_no_fault(work());
  check_no_fault(kernel());
  block = Tensor();
  check_fault(work(), {"fill writes 4000 bytes of a block that was freed"});
  const std::vector<std::string> faults = kernel();
  CHECK(faults.size() == 2);  // x and bias
  for (const std::string& text : faults) CHECK_THAT(text, Contains(" got memory of a block that was freed"));

  constexpr int64_t kLarge = 32 << 20;  // a segment of its own, whose place comes next to cudaMalloc
  c10::cuda::CUDACachingAllocator::emptyCache();
  const void* const place = filled(kLarge, 1.0).const_data_ptr();
  c10::cuda::CUDACachingAllocator::emptyCache();
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, kBytes) == cudaSuccess);
  CHECK(memory == place);
  const auto fill = [&](size_t bytes) { return faults_of([&] { cudaMemset(memory, 0, bytes); }); };
  check_no_fault(fill(kBytes));
  check_fault(fill(2 * kBytes), {"fill writes 8000 bytes outside of what cudaMalloc gave"});
  check_no_fault(faults_of([&] { CHECK(cudaFree(memory) == cudaSuccess); }));
  check_fault(fill(1), {"fill writes 1 bytes outside of what cudaMalloc gave"});
  check_fault(faults_of([&] { CHECK(cudaFree(memory) != cudaSuccess); }),
              {"cudaFree of memory that cudaMalloc did not"});
  cudaGetLastError();
}

TEST_CASE("A new block holds NaN", "[cuda][null_device]") {
  const Tensor old = filled(1000, 1.0);
  const Tensor fresh = at::empty({1000}, old.options());
  CHECK(on_host(fresh).isnan().all().item<bool>());
}

}  // namespace bert
