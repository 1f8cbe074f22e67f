// What the device's NCCL finds: collectives that differ on the ranks, wrong buffers and devices, and their place in the
// order of streams. Ranks are threads, each with a device of its own.
#include <ATen/cuda/CUDAEvent.h>
#include <nccl.h>

#include <array>
#include <thread>

#include "tests/null_device/tests/device_testing.h"

namespace bert {
namespace {

using at::Tensor;
using c10::cuda::CUDAStream;
using namespace testing;

constexpr int kRanks = 2;
constexpr int64_t kCount = 100;

struct Rank {
  int rank = 0;
  c10::Device device = kFirst;
  ncclComm_t comm = nullptr;
  [[nodiscard]] cudaStream_t stream() const { return c10::cuda::getCurrentCUDAStream(device.index()).stream(); }
};

ncclUniqueId new_id() {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  return id;
}

/// Runs the body for both ranks, which have communicators. Its streams are not the legacy ones.
template <class Body>
void on_ranks(const Body& body) {
  const ncclUniqueId id = new_id();
  std::array<std::thread, kRanks> threads;
  std::array<ncclResult_t, kRanks> made{};
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.at(static_cast<size_t>(rank)) = std::thread([&, rank] {
      Rank own{.rank = rank, .device = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(rank))};
      const c10::cuda::CUDAGuard guard(own.device);
      const c10::cuda::CUDAStreamGuard on(c10::cuda::getStreamFromPool(false, own.device.index()));
      made.at(static_cast<size_t>(rank)) = ncclCommInitRank(&own.comm, kRanks, id, rank);
      if (own.comm == nullptr) return;
      body(own);
      c10::cuda::getCurrentCUDAStream().synchronize();
      ncclCommDestroy(own.comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const ncclResult_t result : made) CHECK(result == ncclSuccess);
}

void sum(const Rank& rank, const Tensor& tensor, ncclRedOp_t operation = ncclSum) {
  ncclAllReduce(tensor.const_data_ptr(), tensor.mutable_data_ptr(), kCount, ncclFloat32, operation, rank.comm,
                rank.stream());
}

}  // namespace

// With a name that faults can show.
[[gnu::noinline]] void sum_of_two(const Tensor& tensor, ncclComm_t comm, cudaStream_t stream) {
  ncclAllReduce(tensor.const_data_ptr(), tensor.mutable_data_ptr(), 2, ncclFloat32, ncclSum, comm, stream);
}

TEST_CASE("The same collectives on all ranks are no fault", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  std::array<float, kRanks> sums{}, copies{};
  check_no_fault(faults_of([&] {
    on_ranks([&](const Rank& rank) {
      const Tensor tensor = filled(kCount, 1.0 + rank.rank, rank.device),
                   other = filled(kCount, rank.rank, rank.device);
      sum(rank, tensor);
      tensor.mul_(2.0);
      ncclBroadcast(other.const_data_ptr(), other.mutable_data_ptr(), kCount, ncclFloat32, 1, rank.comm, rank.stream());
      sums.at(static_cast<size_t>(rank.rank)) = on_host(tensor)[kCount - 1].item<float>();
      copies.at(static_cast<size_t>(rank.rank)) = on_host(other)[0].item<float>();
    });
  }));
  CHECK(sums == std::array<float, kRanks>{6.0F, 6.0F});
  CHECK(copies == std::array<float, kRanks>{1.0F, 1.0F});
}

TEST_CASE("Collectives that differ on the ranks are found on each, with the place of the call", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  const auto faults_with = [](const auto& call) {
    return faults_of([&] {
      on_ranks([&](const Rank& rank) {
        const Tensor tensor = filled(kCount, 1.0, rank.device);
        call(rank, tensor);
        c10::cuda::getCurrentCUDAStream().synchronize();
        ncclResult_t error = ncclSuccess;
        ncclCommGetAsyncError(rank.comm, &error);
        if (error != ncclInvalidUsage) null_device::fault("the communicator does not know");
      });
    });
  };
  const auto both = [](const std::vector<std::string>& faults, const std::string& first, const std::string& second) {
    CHECK(faults.size() == 2);
    for (const std::string& text : faults) {
      CHECK_THAT(text, Contains("NCCL: collective 1 of the communicator: rank 0 calls " + first +
                                ", and rank 1 calls " + second) ||
                           Contains("NCCL: collective 1 of the communicator: rank 1 calls " + second +
                                    ", and rank 0 calls " + first));
      CHECK_THAT(text, Contains("it was queued at"));
    }
  };
  const auto sizes = faults_with([](const Rank& rank, const Tensor& tensor) {
    rank.rank == 0 ? sum(rank, tensor) : sum_of_two(tensor, rank.comm, rank.stream());
  });
  both(sizes, "ncclAllReduce of 100 float32, sum", "ncclAllReduce of 2 float32, sum");
  CHECK_THAT(sizes.front() + sizes.back(), Contains("bert::sum_of_two("));
  both(faults_with(
           [](const Rank& rank, const Tensor& tensor) { sum(rank, tensor, rank.rank == 0 ? ncclSum : ncclMax); }),
       "ncclAllReduce of 100 float32, sum", "ncclAllReduce of 100 float32, maximum");
  both(faults_with([](const Rank& rank, const Tensor& tensor) {
         if (rank.rank == 0) {
           sum(rank, tensor);
         } else {
           ncclBroadcast(tensor.const_data_ptr(), tensor.mutable_data_ptr(), kCount, ncclFloat32, 0, rank.comm,
                         rank.stream());
         }
       }),
       "ncclAllReduce of 100 float32, sum", "ncclBroadcast of 100 float32, root 0");
}

TEST_CASE("A collective's buffers lie on the device of its communicator", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  const Tensor here = filled(kCount, 1.0), there = filled(kCount, 1.0, kSecond), on_cpu = at::full({kCount}, 1.0);
  wait_for_devices();
  Rank rank;
  REQUIRE(ncclCommInitRank(&rank.comm, 1, new_id(), 0) == ncclSuccess);
  const auto reduce = [&](const Tensor& from, const Tensor& to, int64_t count = kCount) {
    ncclResult_t result = ncclSuccess;
    const auto faults = faults_of([&] {
      result = ncclAllReduce(from.const_data_ptr(), to.mutable_data_ptr(), static_cast<size_t>(count), ncclFloat32,
                             ncclSum, rank.comm, rank.stream());
      cudaDeviceSynchronize();
    });
    CHECK((result == ncclSuccess) == faults.empty());
    return faults;
  };
  check_no_fault(reduce(here, here));
  check_fault(reduce(there, here), {"NCCL: ncclAllReduce: sendbuff is not in the memory of device 0"});
  check_fault(reduce(here, there), {"NCCL: ncclAllReduce: recvbuff is not in the memory of device 0"});
  check_fault(reduce(on_cpu, here), {"NCCL: ncclAllReduce: sendbuff is not in the memory of device 0"});
  check_fault(reduce(pinned(kCount, 1.0), here), {"NCCL: ncclAllReduce: sendbuff is not in the memory of device 0"});
  check_fault(reduce(here.slice(0, 0, 60), here.slice(0, 40), 60), {"sendbuff and recvbuff overlap in part"});
  check_no_fault(reduce(here.slice(0, 0, 50), here.slice(0, 50), 50));
  Tensor freed = filled(kCount, 1.0);
  void* const memory = freed.mutable_data_ptr();
  freed = Tensor();
  const auto faults = faults_of([&] {
    ncclAllReduce(memory, memory, kCount, ncclFloat32, ncclSum, rank.comm, rank.stream());
    cudaDeviceSynchronize();
  });
  REQUIRE(!faults.empty());
  CHECK_THAT(faults.front(), Contains("ncclAllReduce reads 400 bytes of a block that was freed"));
  {
    const c10::cuda::CUDAGuard second(kSecond);
    check_fault(reduce(here, here),
                {"NCCL: ncclAllReduce: the current device is 1, and the communicator was made on device 0"});
  }
  REQUIRE(ncclCommDestroy(rank.comm) == ncclSuccess);
  check_fault(reduce(here, here), {"NCCL: ncclAllReduce on a communicator that is destroyed"});
}

TEST_CASE("Two ranks on one device are refused on both", "[cuda][null_device]") {
  const ncclUniqueId id = new_id();
  std::array<ncclResult_t, kRanks> results{};
  std::array<std::string, kRanks> texts;
  std::array<std::thread, kRanks> threads;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    threads.at(rank) = std::thread([&, rank] {
      ncclComm_t comm = nullptr;
      results.at(rank) = ncclCommInitRank(&comm, kRanks, id, static_cast<int>(rank));
      texts.at(rank) = ncclGetLastError(nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(results == std::array<ncclResult_t, kRanks>{ncclInvalidUsage, ncclInvalidUsage});
  for (const std::string& text : texts)
    CHECK_THAT(text, Contains("Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 0000:10:00.0"));
}

TEST_CASE("A collective takes part in races, and what comes after it waits", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  std::array<float, kRanks> values{};
  const auto faults_when = [&](bool ordered) {
    return faults_of([&] {
      on_ranks([&](const Rank& rank) {
        const CUDAStream own = c10::cuda::getCurrentCUDAStream();
        const CUDAStream side = c10::cuda::getStreamFromPool(false, rank.device.index());
        const Tensor tensor = filled(kCount, 1.0, rank.device);
        if (rank.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));  // rank 0 has to wait
        sum(rank, tensor);
        at::cuda::CUDAEvent event;
        event.record(own);
        if (ordered) event.block(side);
        {
          const c10::cuda::CUDAStreamGuard on(side);
          tensor.mul_(5.0);
        }
        own.synchronize();
        side.synchronize();
        values.at(static_cast<size_t>(rank.rank)) = on_host(tensor)[0].item<float>();
      });
    });
  };
  check_no_fault(faults_when(/*ordered=*/true));
  CHECK(values == std::array<float, kRanks>{10.0F, 10.0F});
  const auto faults = faults_when(/*ordered=*/false);
  CHECK(faults.size() == 2);
  for (const std::string& text : faults)
    CHECK_THAT(text, Contains("race: aten::mul.out on stream ") && Contains("that ncclAllReduce on stream ") &&
                         Contains(" has written"));
}

TEST_CASE("A collective that does not end is not done, and an abort ends it", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  check_no_fault(faults_of([&] {
    on_ranks([&](Rank& rank) {
      if (rank.rank == 1) return;  // it never calls
      const CUDAStream own = c10::cuda::getCurrentCUDAStream();
      const Tensor tensor = filled(kCount, 1.0, rank.device);
      sum(rank, tensor);
      at::cuda::CUDAEvent event;
      event.record(own);
      bool done = own.query();
      for (int i = 0; i < 10; ++i) done = done || event.query() || own.query();
      if (done) null_device::fault("a collective has ended that another rank has not called");
      ncclCommAbort(std::exchange(rank.comm, nullptr));
      own.synchronize();
      if (!event.query()) null_device::fault("a collective that was aborted goes on");
    });
  }));
}

}  // namespace bert
