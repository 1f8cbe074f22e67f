// Collectives over NCCL against the same collectives over Gloo: a group on GPUs has both backends, one for GPU tensors
// and one for CPU tensors.
#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/cuda.h>
#ifdef USE_C10D_NCCL
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#endif

#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <vector>

#include "app/distributed/group_end.h"
#include "app/distributed/nccl_backend.h"
#include "app/distributed/process_group.h"
#include "app/system/exit_codes.h"
#include "data/io/files.h"
#include "optim/data_parallel.h"
#include "tests/support/device_under_test.h"
#include "tests/support/ops_testing.h"
#include "tests/support/rank_processes.h"
#include "tests/testing.h"

namespace bert {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using testing::mismatch;

/// Values [count] that differ for every `draw`.
Tensor values(int64_t count, int64_t draw) {
  return (at::arange(count, at::kFloat) * (0.3 + 0.1 * static_cast<double>(draw))).sin();
}

const std::vector<int64_t> kSizes = {20, 3, 64, 7, 33};  // elements of the parameters: several buckets of 200 bytes

std::vector<NamedParameter> make_parameters(c10::Device device) {
  std::vector<NamedParameter> parameters;
  for (const int64_t size : kSizes)
    parameters.push_back({std::to_string(size), values(size, 0).to(device).requires_grad_()});
  return parameters;
}

/// The gradient of parameter `i` on a rank in micro-step `micro`.
Tensor gradient(size_t i, int rank, int micro) {
  return values(kSizes[i], static_cast<int64_t>(i) + 5 * rank + 100 * micro);
}

/// Gradients of all parameters, on the CPU, after two micro-steps; the second one reduces.
Tensors reduce(const ProcessGroupPtr& group, c10::Device device, const DataParallelOptions& options) {
  const std::vector<NamedParameter> parameters = make_parameters(device);
  DataParallel parallel(group, parameters, options);
  for (const int micro : {0, 1}) {
    parallel.expect_reduction(micro == 1);
    Tensor loss = at::zeros({}, device);
    for (size_t i = 0; i < parameters.size(); ++i)
      loss = loss + (parameters[i].tensor * gradient(i, get_rank(group), micro).to(device)).sum();
    loss.backward();
  }
  parallel.finish();
  CHECK(parallel.exposed_ms() >= 0.0);
  Tensors result;
  for (const NamedParameter& parameter : parameters)
    result.push_back(parameter.tensor.grad().to(at::kCPU, false, true));
  return result;
}

void check_reductions(const ProcessGroupPtr& group, c10::Device device) {
  const int rank = get_rank(group), size = get_world_size(group);
  std::vector<int> owners;
  for (size_t i = 0; i < kSizes.size(); ++i) owners.push_back(static_cast<int>(i) % size);
  for (const char* compression : {"none", "bf16", "fp16"}) {
    for (const bool owned : {false, true}) {
      INFO(compression << (owned ? ", with owners" : ""));
      const DataParallelOptions options{.bucket_bytes = 200,
                                        .compression = value_named<GradientCompression>(compression).value(),
                                        .owners = owned ? owners : std::vector<int>{}};
      const Tensors got = reduce(group, device, options), on_cpu = reduce(group, c10::kCPU, options);
      const double rounded = testing::kBFloat16.relative / testing::kFloat.relative * size;  // rounded at every hop
      const double scale = options.compression == GradientCompression::kNone ? 1.0 : rounded;
      for (size_t i = 0; i < kSizes.size(); ++i) {
        if (owned && owners[i] != rank) continue;
        INFO("parameter " << i);
        Tensor want = at::zeros({kSizes[i]});
        for (int r = 0; r < size; ++r) want += gradient(i, r, 0) + gradient(i, r, 1);
        want /= size;
        CHECK(mismatch(got[i], want, scale) == "");
        CHECK(mismatch(got[i], on_cpu[i], scale) == "");
      }
    }
  }
}

void check_parameters(const ProcessGroupPtr& group, c10::Device device) {
  const std::vector<NamedParameter> parameters = make_parameters(device);
  DataParallel parallel(group, parameters);
  CHECK(parallel.first_difference() == std::nullopt);
  {
    const at::NoGradGuard no_grad;
    parameters[3].tensor.add_(get_rank(group));
  }
  const auto difference = parallel.first_difference();
  CHECK(difference.has_value() == (get_world_size(group) > 1));
  if (difference) CHECK_THAT(*difference, testing::Contains(parameters[3].name + " differs from rank 0's"));
  parallel.broadcast_parameters();
  CHECK(parallel.first_difference() == std::nullopt);
  for (size_t i = 0; i < kSizes.size(); ++i) CHECK(parameters[i].tensor.to(at::kCPU).equal(values(kSizes[i], 0)));
}

void check_collectives(const ProcessGroupPtr& group, c10::Device device) {
  const int rank = get_rank(group), size = get_world_size(group);
  const auto on_device = [&](const std::vector<double>& numbers) { return at::tensor(numbers, at::kFloat).to(device); };
  barrier(group);
  Tensor tensor = on_device({1.0 * rank, -2.0 * rank});
  all_reduce(group, tensor, c10d::ReduceOp::MAX);
  CHECK(tensor.to(at::kCPU).equal(at::tensor({size - 1, 0}, at::kFloat)));
}

void check_flag(const ProcessGroupPtr& group) {
  AgreedFlag flag(group);
  std::vector<bool> answers;
  for (int call = 0; call < 4; ++call) answers.push_back(flag.exchange(call == 1 && get_rank(group) == 0));
  CHECK(answers == std::vector<bool>{false, false, true, false});
}

void check_all(const ProcessGroupPtr& group, c10::Device device) {
  REQUIRE(group->getBackendName() == "nccl");
  check_reductions(group, device);
  check_parameters(group, device);
  check_collectives(group, device);
  check_flag(group);
  barrier(group);
}

}  // namespace

TEST_CASE("One GPU is a group over NCCL, with Gloo's results", "[cuda][distributed]") {
  BERT_DEVICE_OR_SKIP(device);
  const testing::TemporaryDirectory directory;
  const auto store = c10::make_intrusive<c10d::FileStore>(directory.path("store"), 1);
  check_all(make_process_group(store, {}, {.timeout_seconds = 60, .device = device}), device);
}

#ifdef USE_C10D_NCCL
TEST_CASE("A captured all_reduce is replayed, and nobody waits for it meanwhile", "[cuda][distributed]") {
  BERT_DEVICE_OR_SKIP(device);
  const testing::TemporaryDirectory directory;
  const auto store = c10::make_intrusive<c10d::FileStore>(directory.path("store"), 1);
  const ProcessGroupPtr group = make_process_group(store, {}, {.timeout_seconds = 2, .device = device});
  const Tensor tensor = at::ones({4}, device);
  all_reduce(group, tensor);  // the first collective connects
  at::cuda::CUDAGraph graph;
  const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
  {
    const c10::cuda::CUDAStreamGuard on(stream);
    stream.synchronize();
    graph.capture_begin();
    tensor.mul_(2);
    all_reduce(group, tensor);
    std::this_thread::sleep_for(std::chrono::seconds(3));  // longer than the timeout
    graph.capture_end();
    graph.replay();
    graph.replay();
    stream.synchronize();
  }
  CHECK(tensor.to(at::kCPU).equal(at::full({4}, 4.0F)));
  all_reduce(group, tensor);
  CHECK(tensor.to(at::kCPU).equal(at::full({4}, 4.0F)));
}
#endif

const testing::TestProgram kOnOwnGpu("a rank on a GPU of its own", [] {
  BERT_DEVICE_OR_SKIP(first);
  const auto rank = static_cast<c10::DeviceIndex>(std::stoi(testing::variable("RANK")));
  const c10::Device device(first.type(), rank);
  c10::impl::VirtualGuardImpl(device.type()).setDevice(device);  // as select_device() does
  check_all(init_process_group({.init_method = testing::variable("INIT"), .timeout_seconds = 120, .device = device}),
            device);
});

#ifdef USE_C10D_NCCL
const testing::TestProgram kWithBadCommunicator("a rank whose communicator does not work", [] {
  const std::string how = testing::variable("HOW");
  const int rank = std::stoi(testing::variable("RANK"));
  const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(how == "killed" ? rank : 0));
  const c10::cuda::CUDAGuard on(device);
  ProcessGroupPtr group;
  std::_Exit(guarded("rank", [&] {
    return with_orderly_end(group, [&] {
      if (how == "alone") {
        const auto file_store = [] { return c10::make_intrusive<c10d::FileStore>(testing::variable("STORE"), 2); };
        std::thread([store = file_store()] {
          expect_own_gpu(*store, 1, 2,
                         {.machine = "another", .host_name = "another", .address = "01:00", .visible = 1});
        }).detach();
        const auto store = file_store();
        group = make_process_group(store, {.rank = 0, .size = 2}, {.timeout_seconds = 3, .device = device});
      } else {
        group = init_process_group(
            {.init_method = "file://" + testing::variable("STORE"), .timeout_seconds = 20, .device = device});
      }
      const Tensor tensor = at::ones({1 << 20}, device);
      all_reduce(group, tensor);
      torch::cuda::synchronize(device.index());
      if (rank == 1) raise(SIGKILL);
      all_reduce(group, tensor);
      torch::cuda::synchronize(device.index());  // the host waits here, and the monitor ends the process
      return 0;
    });
  }));
});

TEST_CASE("What hangs or fails in NCCL is named, and a GPU that two ranks share is refused", "[cuda][distributed]") {
  BERT_DEVICE_OR_SKIP(device);
  struct Case {
    std::string how, message;
    int ranks;
    std::vector<int> codes;
  };
  std::vector<Case> cases = {
      {"alone", "collective 1 (forming of the communicator) failed on rank 0", 1, {kPeerFailure}},
      {"shared", " would share the GPU at ", 2, {kBadConfiguration, kBadConfiguration}}};
  if (torch::cuda::device_count() > 1) {
    cases.push_back(
        {"killed", "rank 1 does not respond (stopped, dead, or cut off)", 2, {kPeerFailure, 1000 + SIGKILL}});
  }
  for (const Case& each : cases) {
    CAPTURE(each.how);
    const testing::TemporaryDirectory directory;
    const std::string error = directory.path("error");
    CHECK(testing::run_ranks(
              kWithBadCommunicator, each.ranks,
              {{"HOW", each.how}, {"STORE", directory.path("store")}, {"TORCHELASTIC_ERROR_FILE", error}}) ==
          each.codes);
    const auto file = nlohmann::json::parse(read_file(error));
    CHECK_THAT(file["message"]["message"].get<std::string>(), testing::Contains(each.message));
  }
}

TEST_CASE("The orderly end of a group over NCCL waits for its collectives", "[cuda][distributed]") {
  BERT_DEVICE_OR_SKIP(device);
  const testing::TemporaryDirectory directory;
  const Tensor tensor = at::ones({1 << 24}, device);
  const ProcessGroupPtr group = make_process_group(c10::make_intrusive<c10d::FileStore>(directory.path("store"), 1), {},
                                                   {.timeout_seconds = 60, .device = device});
  CHECK(with_orderly_end(group, [&] {
          for (int i = 0; i < 20; ++i) all_reduce(group, tensor);
          return 5;
        }) == 5);
  CHECK(tensor.to(at::kCPU).equal(at::ones({1 << 24})));
}
#endif

TEST_CASE("As many GPUs as there are reduce over NCCL to Gloo's results", "[cuda][distributed]") {
  BERT_DEVICE_OR_SKIP(device);
  const int ranks = static_cast<int>(torch::cuda::device_count());
  if (ranks < 2) BERT_SKIP("there is one GPU");
  const testing::TemporaryDirectory directory;
  CHECK(testing::run_ranks(kOnOwnGpu, ranks, {{"INIT", "file://" + directory.path("store")}}) ==
        std::vector<int>(static_cast<size_t>(ranks), 0));
}

}  // namespace bert
