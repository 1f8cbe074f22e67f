// Flat gradients, accumulation and the mean over ranks. Ranks are threads here, each with a Gloo process group of its
// own.
#include "optim/data_parallel.h"

#include <ATen/ATen.h>

#include <functional>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "optim/amp.h"
#include "tests/testing.h"

namespace bert {
namespace {

using torch::Tensor;

c10::intrusive_ptr<c10d::ProcessGroup> gloo_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  auto backend = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::GLOO, backend);
  return group;
}

void on_ranks(int size, const std::function<void(int, const c10::intrusive_ptr<c10d::ProcessGroup>&)>& run) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back([&, rank] { run(rank, gloo_group(store, rank, size)); });
  for (std::thread& thread : threads) thread.join();
}

/// A regression with two parameters: loss = mean over samples of (x weight + bias - y)^2.
struct Model {
  explicit Model(at::ScalarType dtype) {
    parameters = {{"dense.weight", at::arange(12, at::kDouble).sin().view({4, 3}).to(dtype).requires_grad_()},
                  {"dense.bias", at::zeros({3}, dtype).requires_grad_()}};
  }
  [[nodiscard]] Tensor loss(const Tensor& x, const Tensor& y) const {
    return (at::matmul(x, parameters[0].tensor) + parameters[1].tensor - y).square().mean();
  }
  std::vector<NamedParameter> parameters;
};

struct Data {
  explicit Data(at::ScalarType dtype) {
    x = (at::arange(96, at::kDouble) * 0.7).cos().view({24, 4}).to(dtype);
    y = (at::arange(72, at::kDouble) * 1.3).sin().view({24, 3}).to(dtype);
  }
  Tensor x, y;
};

/// The parameters after three steps over the same 24 samples in `micro_steps` parts.
std::vector<Tensor> train(const OptimizerConfig& config, int64_t micro_steps) {
  const Data data(at::kDouble);
  Model model(at::kDouble);
  DataParallel parallel(nullptr, model.parameters);
  const auto optimizer = make_optimizer(config, model.parameters);
  const int64_t size = data.x.size(0) / micro_steps;
  for (int step = 0; step < 3; ++step) {
    for (int64_t micro = 0; micro < micro_steps; ++micro) {
      parallel.expect_reduction(micro + 1 == micro_steps);
      const Tensor x = data.x.narrow(0, micro * size, size), y = data.y.narrow(0, micro * size, size);
      (model.loss(x, y) / static_cast<double>(micro_steps)).backward();
    }
    parallel.finish();
    optimizer->apply({.lr = at::scalar_tensor(1e-2), .inv_scale = {}, .found_inf = {}});
    parallel.zero_gradients();
  }
  return {model.parameters[0].tensor.detach(), model.parameters[1].tensor.detach()};
}

}  // namespace

TEST_CASE("k micro-steps of b equal one step of k b", "[optim]") {
  for (const char* type : {"lamb", "adamw"}) {
    const std::vector<Tensor> one = train({.type = type}, 1);
    for (const int64_t micro_steps : {2L, 6L, 24L}) {
      const std::vector<Tensor> many = train({.type = type}, micro_steps);
      for (size_t i = 0; i < one.size(); ++i)
        CHECK(((many[i] - one[i]).norm() / one[i].norm()).item<double>() <= 1e-10);
    }
  }
}

TEST_CASE("Gradients are views into one buffer and accumulate there", "[optim]") {
  const Data data(at::kFloat);
  Model model(at::kFloat);
  DataParallel parallel(nullptr, model.parameters);
  REQUIRE(parallel.buffers().size() == 1);
  CHECK(parallel.world_size() == 1);
  model.loss(data.x, data.y).backward();
  const Tensor once = model.parameters[0].tensor.grad().clone();
  model.loss(data.x, data.y).backward();
  CHECK(model.parameters[0].tensor.grad().equal(once * 2));
  CHECK(parallel.buffers()[0].norm().item<float>() > 0.0F);
  parallel.zero_gradients();
  CHECK(model.parameters[0].tensor.grad().count_nonzero().item<int64_t>() == 0);
  CHECK_THROWS_WITH(parallel.finish(), testing::Contains("expect_reduction(true)"));
  model.parameters[1].tensor.mutable_grad() = Tensor();
  CHECK_THROWS_WITH(parallel.zero_gradients(), testing::Contains("dense.bias is no longer a view"));
}

TEST_CASE("1024 micro-steps in bf16 weights accumulate in fp32", "[optim]") {
  Tensor low = at::ones({8}, at::kBFloat16).requires_grad_();
  DataParallel parallel(nullptr, {{"w", low}});
  CHECK(low.grad().scalar_type() == at::kFloat);
  at::manual_seed(4);
  Tensor want = at::zeros({8}, at::kDouble);
  for (int micro = 0; micro < 1024; ++micro) {
    const Tensor factor = at::rand({8}).to(at::kBFloat16);
    (low * factor).sum().backward();
    want += factor.to(at::kDouble);
  }
  CHECK(low.grad().scalar_type() == at::kFloat);
  CHECK(((low.grad().to(at::kDouble) - want).norm() / want.norm()).item<double>() <= 1e-6);  // in bf16: 0.5
}

TEST_CASE("Ranks see rank 0's parameters and the mean of the gradients", "[optim][distributed]") {
  const Data data(at::kDouble);
  Model whole(at::kDouble);
  whole.loss(data.x, data.y).backward();
  std::vector<Tensor> gradients(3), weights(3);
  on_ranks(3, [&](int rank, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
    Model model(at::kDouble);
    {
      const at::NoGradGuard no_grad;
      if (rank != 0) model.parameters[0].tensor.fill_(rank);
    }
    DataParallel parallel(group, model.parameters, 64);  // several buckets
    parallel.broadcast_parameters();
    parallel.expect_reduction(true);
    model.loss(data.x.narrow(0, rank * 8, 8), data.y.narrow(0, rank * 8, 8)).backward();
    parallel.finish();
    gradients[static_cast<size_t>(rank)] = model.parameters[0].tensor.grad().clone();
    weights[static_cast<size_t>(rank)] = model.parameters[0].tensor.detach().clone();
  });
  for (size_t rank = 0; rank < 3; ++rank) {
    CHECK(weights[rank].equal(whole.parameters[0].tensor));
    CHECK(gradients[rank].equal(gradients[0]));
  }
  CHECK(at::allclose(gradients[0], whole.parameters[0].tensor.grad(), 1e-12, 1e-12));
}

}  // namespace bert
