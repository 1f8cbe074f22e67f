// Graphs that LibTorch captures: what a replay computes, draws and touches.
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <set>

#include "cuda_ext/ops.h"
#include "tests/null_device/tests/device_testing.h"

namespace bert {
namespace {

using at::Tensor;
using c10::cuda::CUDAStream;
using c10::cuda::CUDAStreamGuard;
using namespace testing;

/// Captures the body on a stream of its own, which waits for all that was before. LibTorch fills the seeds of its
/// generator on that stream, and a replay on another one must come after.
template <class Body>
void capture(at::cuda::CUDAGraph& graph, const Body& body) {
  wait_for_devices();
  const CUDAStreamGuard on(c10::cuda::getStreamFromPool());
  graph.capture_begin();
  body();
  graph.capture_end();
  c10::cuda::getCurrentCUDAStream().synchronize();
}

float first_of(const Tensor& tensor) { return on_host(tensor).flatten()[0].item<float>(); }

void wait_for(const CUDAStream& before, const CUDAStream& after) {
  at::cuda::CUDAEvent event;
  event.record(before);
  event.block(after);
}

}  // namespace

// With names that faults can show.
[[gnu::noinline]] void add_in_graph(const Tensor& to, const Tensor& what) { to.add_(what); }
[[gnu::noinline]] void replay_graph(at::cuda::CUDAGraph& graph) { graph.replay(); }

TEST_CASE("A capture with a fork and a join replays what eager work computes", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  const Tensor x = filled(64, 1.5).view({8, 8}), weight = filled(64, 0.25).view({8, 8}), bias = filled(8, 0.5);
  Tensor left, right, sum;
  const auto compute = [&](const CUDAStream& side) {
    const CUDAStream main = c10::cuda::getCurrentCUDAStream();
    wait_for(main, side);
    {
      const CUDAStreamGuard on(side);
      right = ops::bias_gelu(x, bias, ops::Gelu::kErf).mul(2.0);
    }
    left = at::mm(x, weight).softmax(-1);
    wait_for(side, main);
    sum = left.add(right);
  };
  const CUDAStream side = c10::cuda::getStreamFromPool();
  const int64_t launched = null_device::count("captured");
  at::cuda::CUDAGraph graph;
  check_no_fault(faults_of([&] { capture(graph, [&] { compute(side); }); }));
  CHECK(null_device::count("captured") - launched == 7);  // bias_gelu notes what it reads and writes
  const Tensor of_graph = sum;
  CHECK(on_host(of_graph).isnan().all().item<bool>());  // captured work does not run

  for (const double value : {1.5, -0.5, 3.0}) {
    INFO(value);
    x.fill_(value);
    check_no_fault(faults_of([&] { replay_graph(graph); }));
    const Tensor replayed = on_host(of_graph);
    compute(side);
    CHECK(replayed.equal(on_host(sum)));
  }
}

TEST_CASE("Work of two captured streams without an event between them races", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  const Tensor x = filled(100, 1.0), y = filled(100, 2.0);
  const CUDAStream side = c10::cuda::getStreamFromPool();
  const auto captured_with = [&](bool joined_early) {
    at::cuda::CUDAGraph graph;
    std::string main_stream;
    const auto faults = faults_of([&] {
      capture(graph, [&] {
        const CUDAStream main = c10::cuda::getCurrentCUDAStream();
        main_stream = number(main);
        wait_for(main, side);
        {
          const CUDAStreamGuard on(side);
          add_in_graph(x, y);
        }
        if (joined_early) wait_for(side, main);
        x.mul_(2.0);
        if (!joined_early) wait_for(side, main);
      });
    });
    if (joined_early) {
      check_no_fault(faults);
    } else {
      check_fault(faults, {"race: aten::mul.out on " + main_stream + " reads bytes that aten::add_.Tensor on " +
                               number(side) + " has written",
                           "the other at", "bert::add_in_graph("});
    }
  };
  captured_with(/*joined_early=*/false);
  captured_with(/*joined_early=*/true);
}

TEST_CASE("A replay is work of its stream", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  const Tensor x = filled(100, 1.0), y = filled(100, 2.0);
  at::cuda::CUDAGraph graph;
  capture(graph, [&] { add_in_graph(x, y); });
  const CUDAStream first = c10::cuda::getStreamFromPool(), second = c10::cuda::getStreamFromPool();
  const auto replay_after_write = [&](bool ordered) {
    wait_for_devices();
    return faults_of([&] {
      {
        const CUDAStreamGuard on(first);
        y.fill_(3.0);
      }
      if (ordered) wait_for(first, second);
      const CUDAStreamGuard on(second);
      replay_graph(graph);
    });
  };
  check_fault(replay_after_write(false),
              {"race: aten::add_.Tensor on " + number(second) + " reads bytes that aten::fill_.Scalar on " +
                   number(first) + " has written",
               "bert::replay_graph(", "and it was queued at", "bert::add_in_graph("});
  check_no_fault(replay_after_write(true));
}

TEST_CASE("A replay may use blocks of its own that were freed, and no others", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  constexpr int64_t kCount = 3 << 18;          // segments that no other tensor is in
  Tensor input = filled(kCount, 2.0), result;  // 3 MB
  at::cuda::CUDAGraph graph;
  capture(graph, [&] { result = input.mul(3.0).add(1.0); });  // the product is freed here
  wait_for_devices();
  check_no_fault(faults_of([&] { replay_graph(graph); }));
  CHECK(first_of(result) == 7.0F);

  input = Tensor();
  check_fault(faults_of([&] { replay_graph(graph); }),
              {"aten::mul.Tensor of a graph reads 3145728 bytes of a block that was freed", "bert::replay_graph("});
  const Tensor another = filled(kCount, 5.0);
  check_fault(
      faults_of([&] { replay_graph(graph); }),
      {"aten::mul.Tensor of a graph reads 3145728 bytes of a block that was freed after the capture, and now is "
       "another block"});
  result = Tensor();
  check_fault(faults_of([&] { replay_graph(graph); }), {"aten::mul.Tensor of a graph"});  // of the input only
}

TEST_CASE("LibTorch's generator draws new numbers at every replay of a graph", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  constexpr int64_t kCount = 1000;
  const Tensor ones = filled(kCount, 1.0);
  at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator(0);
  generator.set_current_seed(17);
  Tensor dropped, drawn;
  at::cuda::CUDAGraph graph;
  check_no_fault(faults_of([&] {
    capture(graph, [&] {
      dropped = at::dropout(ones, 0.5, /*train=*/true);
      drawn = at::empty_like(ones).normal_();
    });
  }));
  std::set<std::vector<float>> masks, numbers;
  const auto values = [](const Tensor& tensor) {
    const Tensor on_cpu = on_host(tensor);
    return std::vector<float>(on_cpu.const_data_ptr<float>(), on_cpu.const_data_ptr<float>() + kCount);
  };
  constexpr size_t kReplays = 3;
  for (size_t i = 0; i < kReplays; ++i) {
    check_no_fault(faults_of([&] { replay_graph(graph); }));
    masks.insert(values(dropped));
    numbers.insert(values(drawn));
    const auto zeros = (kCount - on_host(dropped).count_nonzero().item<int64_t>());
    CHECK(zeros > kCount / 2 - 100);
    CHECK(zeros < kCount / 2 + 100);
    CHECK(on_host(dropped).max().item<float>() == 2.0F);
  }
  CHECK(masks.size() == kReplays);
  CHECK(numbers.size() == kReplays);

  generator.set_current_seed(17);  // and the same again after the same seed
  std::set<std::vector<float>> again;
  for (size_t i = 0; i < kReplays; ++i) {
    replay_graph(graph);
    again.insert(values(dropped));
  }
  CHECK(again == masks);
}

TEST_CASE("Replays are counted, and count as no launches of their nodes", "[cuda][null_device]") {
  const WaitAtEnd wait_at_end;
  const Tensor x = filled(4, 1.0);
  at::cuda::CUDAGraph graph;
  capture(graph, [&] {
    x.add_(1.0);
    x.mul_(2.0);
  });
  const int64_t replays = null_device::count("replay"), captured = null_device::count("captured");
  replay_graph(graph);
  replay_graph(graph);
  CHECK(null_device::count("replay") - replays == 2);
  CHECK(null_device::count("captured") == captured);
  CHECK(first_of(x) == 10.0F);  // ((1 + 1) * 2 + 1) * 2
}

}  // namespace bert
