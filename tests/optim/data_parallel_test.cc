// Flat gradients, accumulation, and the mean over ranks. Ranks are threads here, each with its own Gloo process group.
#include "optim/data_parallel.h"

#include <ATen/ATen.h>

#include <vector>

#include "optim/amp.h"
#include "tests/support/gloo_ranks.h"
#include "tests/support/mismatch.h"
#include "tests/testing.h"

namespace bert {
namespace {

using torch::Tensor;

using testing::mismatch;
using testing::on_ranks;

/// A regression with two parameters: loss = mean over points of (x weight + bias - y)^2.
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

/// The parameters after three steps over the same 24 points in `micro_steps` parts.
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

TEST_CASE("k micro-steps of b equal one step of k b", "[unit][optim]") {
  for (const char* type : {"lamb", "adamw"}) {
    const std::vector<Tensor> one = train({.type = value_named<OptimizerType>(type).value()}, 1);
    for (const int64_t micro_steps : {2L, 6L, 24L}) {
      const std::vector<Tensor> many = train({.type = value_named<OptimizerType>(type).value()}, micro_steps);
      for (size_t i = 0; i < one.size(); ++i)
        CHECK(((many[i] - one[i]).norm() / one[i].norm()).item<double>() <= 1e-10);
    }
  }
}

TEST_CASE("Gradients are views into one buffer and accumulate there", "[unit][optim]") {
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
  const auto optimizer = make_optimizer({}, model.parameters);
  model.loss(data.x, data.y).backward();
  optimizer->zero_grad(/*set_to_none=*/false);
  CHECK(parallel.buffers()[0].count_nonzero().item<int64_t>() == 0);
  CHECK_NOTHROW(parallel.zero_gradients());
  optimizer->zero_grad();
  CHECK_THROWS_WITH(parallel.zero_gradients(), testing::Contains("dense.bias is no longer a view"));
}

TEST_CASE("A frozen parameter gets no gradient and stays as it is", "[unit][optim]") {
  const Data data(at::kFloat);
  Model model(at::kFloat);
  const Tensor frozen = at::ones({5});
  frozen.mutable_grad() = at::ones({5});
  model.parameters.push_back({"embeddings.weight", frozen});
  DataParallel parallel(nullptr, model.parameters);
  CHECK_FALSE(frozen.grad().defined());
  const auto optimizer = make_optimizer({.type = OptimizerType::kAdamW, .lr = 0.1}, model.parameters);
  parallel.expect_reduction(true);
  model.loss(data.x, data.y).backward();
  parallel.finish();
  optimizer->step();
  CHECK(frozen.equal(at::ones({5})));
  CHECK(model.parameters[0].tensor.grad().count_nonzero().item<int64_t>() > 0);

  frozen.requires_grad_();
  frozen.sum().backward();
  parallel.expect_reduction(true);
  CHECK_THROWS_WITH(parallel.finish(), testing::Contains("embeddings.weight has a gradient, and was frozen when"));
}

TEST_CASE("1024 micro-steps in low-precision weights accumulate in fp32", "[unit][optim]") {
  for (const auto& [dtype, uses_error] : {std::pair{at::kBFloat16, 2e-4}, {at::kHalf, 2.5e-5}}) {
    CAPTURE(dtype);
    Tensor low = at::ones({8}, dtype).requires_grad_(), tied = low.detach().clone().requires_grad_(),
           alone = low.detach().clone().requires_grad_();
    const DataParallel parallel(nullptr, {{"w", low}, {"tied", tied}});
    at::manual_seed(4);
    Tensor want = at::zeros({8}, at::kDouble);
    for (int micro = 0; micro < 1024; ++micro) {
      const Tensor first = at::rand({8}).to(dtype), second = (at::rand({8}) * 0.1).to(dtype);
      for (Tensor* weight : {&low, &alone}) {
        (*weight * first).sum().backward();
        (*weight * second).sum().backward();
      }
      // Autograd adds the gradients of the two uses first, in the low precision: measured 4.7e-5 (bf16), 6.5e-6 (fp16).
      ((tied * first).sum() + (tied * second).sum()).backward();
      want += first.to(at::kDouble) + second.to(at::kDouble);
    }
    const auto error = [&](const Tensor& weight) {
      return ((weight.grad().to(at::kDouble) - want).norm() / want.norm()).item<double>();
    };
    CHECK(low.grad().scalar_type() == at::kFloat);
    CHECK(error(low) <= 1e-6);
    CHECK(error(tied) <= uses_error);
    CHECK(error(tied) > 1e-6);
    CHECK(alone.grad().scalar_type() == dtype);  // without the buffer
    CHECK(error(alone) > 100 * uses_error);
  }
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
    DataParallel parallel(group, model.parameters, {.bucket_bytes = 64});  // several buckets
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
  CHECK(mismatch(gradients[0], whole.parameters[0].tensor.grad(), {1e-12, 1e-12}) == "");
}

namespace {

/// Six layers in a row with a side loss each; `used` of them take part. Backward reaches them in the order in which the
/// side losses are added, so the order can differ between ranks.
struct Chain {
  Chain() {
    for (int i = 0; i < 6; ++i) {
      const Tensor weight = (at::arange(20, at::kDouble) * (0.3 + i)).sin().view({5, 4}).requires_grad_();
      parameters.push_back({"layer." + std::to_string(i), weight});
    }
  }
  [[nodiscard]] Tensor loss(const Tensor& x, const std::vector<size_t>& used) const {
    Tensor sum = at::zeros({}, at::kDouble);
    for (const size_t i : used) sum = sum + at::matmul(x, parameters[i].tensor).square().mean();
    return sum;
  }
  std::vector<NamedParameter> parameters;
};

struct Reduced {
  std::vector<Tensor> gradients;  // the whole buffer of each rank
  std::vector<double> exposed_ms;
};

enum class Reduction { kDuringBackward, kAfterIt };

/// Two steps of two micro-steps on three ranks. `used` has the layers of each rank's last micro-step.
Reduced reduce(const DataParallelOptions& options, const std::vector<std::vector<size_t>>& used,
               Reduction reduction = Reduction::kDuringBackward) {
  Reduced result{std::vector<Tensor>(3), std::vector<double>(3)};
  on_ranks(3, [&](int rank, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
    const auto r = static_cast<size_t>(rank);
    Chain model;
    DataParallel parallel(group, model.parameters, options);
    for (int step = 0; step < 2; ++step) {
      parallel.zero_gradients();
      for (int micro = 0; micro < 2; ++micro) {
        const Tensor x = (at::arange(30, at::kDouble) * (1.1 + rank + 3 * micro + 6 * step)).cos().view({6, 5});
        parallel.expect_reduction(micro == 1 && reduction == Reduction::kDuringBackward);
        model.loss(x, micro == 1 ? used[r] : std::vector<size_t>{0, 1, 2, 3, 4, 5}).backward();
      }
      if (reduction == Reduction::kAfterIt) parallel.expect_reduction(true);
      parallel.finish();
    }
    result.gradients[r] = parallel.buffers()[0].clone();
    result.exposed_ms[r] = parallel.exposed_ms();
  });
  return result;
}

const std::vector<size_t> kAll = {0, 1, 2, 3, 4, 5}, kBackwards = {5, 4, 3, 2, 1, 0}, kSome = {4, 0, 2};

}  // namespace

TEST_CASE("Reduction during backward gives the bits of reduction after it", "[optim][distributed]") {
  // Ranks may finish gradients in different orders, or lack some in the last micro-step.
  for (const auto& used : {std::vector{kAll, kAll, kAll}, std::vector{kAll, kBackwards, kSome}}) {
    const Reduced want = reduce({.bucket_bytes = 1 << 20}, used, Reduction::kAfterIt);
    for (const int64_t bucket_bytes : {100, 160, 1000, 1 << 20}) {
      const Reduced late = reduce({.bucket_bytes = bucket_bytes}, used, Reduction::kAfterIt);
      const Reduced early = reduce({.bucket_bytes = bucket_bytes}, used);
      for (size_t rank = 0; rank < 3; ++rank) {
        CHECK(early.gradients[rank].equal(late.gradients[rank]));
        CHECK(early.gradients[rank].equal(early.gradients[0]));
        CHECK(mismatch(early.gradients[rank], want.gradients[rank], {1e-15, 1e-14}) == "");
        CHECK(early.exposed_ms[rank] > 0.0);
      }
    }
  }
}

namespace {

/// A Gloo backend that counts reductions.
class CountingBackend : public c10d::Backend {
 public:
  explicit CountingBackend(c10::intrusive_ptr<Backend> backend)
      : Backend(backend->getRank(), backend->getSize()), backend_(std::move(backend)) {}
  const std::string getBackendName() const override { return backend_->getBackendName(); }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<Tensor>& tensors, const c10d::AllreduceOptions& opts) override {
    ++reductions;
    return backend_->allreduce(tensors, opts);
  }
  int reductions = 0;

 private:
  c10::intrusive_ptr<Backend> backend_;
};

}  // namespace

TEST_CASE("Buckets leave while the last micro-step's backward runs", "[optim][distributed]") {
  struct Counts {
    int accumulated = -1, before_last = -1, after_backward = -1, finished = -1;
  };
  std::vector<Counts> counts(2);
  on_ranks(2, [&](int rank, const c10::intrusive_ptr<c10d::ProcessGroup>& gloo) {
    const auto backend = c10::make_intrusive<CountingBackend>(gloo->getBackend(at::kCPU));
    const auto group = c10::make_intrusive<c10d::ProcessGroup>(c10::make_intrusive<c10d::HashStore>(), rank, 2);
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
    group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::GLOO, backend);
    Chain model;
    DataParallel parallel(group, model.parameters, {.bucket_bytes = 192});  // a padded parameter
    Counts& count = counts[static_cast<size_t>(rank)];
    const Tensor x = at::ones({2, 5}, at::kDouble);
    parallel.expect_reduction(false);
    model.loss(x, kAll).backward();
    count.accumulated = backend->reductions;
    // Backward reaches the first layer last. Its gradient exists at this point, and is not yet added to the
    // parameter's.
    model.parameters[0].tensor.register_hook([&](const Tensor&) { count.before_last = backend->reductions; });
    parallel.expect_reduction(true);
    model.loss(x, kAll).backward();
    count.after_backward = backend->reductions;
    parallel.finish();
    count.finished = backend->reductions;
  });
  for (const Counts& count : counts) {
    CHECK(count.accumulated == 0);
    CHECK(count.before_last == 5);
    CHECK(count.after_backward == 6);
    CHECK(count.finished == 6);
  }
}

TEST_CASE("A gradient with an owner arrives there", "[optim][distributed]") {
  const std::vector<std::vector<size_t>> used = {kAll, kBackwards, kSome};
  const Reduced want = reduce({}, used, Reduction::kAfterIt);
  const Reduced got = reduce({.bucket_bytes = 100, .owners = {2, 2, 0, 0, 1, 1}}, used);
  const int64_t size = want.gradients[0].numel() / 6;  // the last parameter comes first
  for (int64_t place = 0; place < 6; ++place) {
    const size_t owner = std::vector<size_t>{1, 1, 0, 0, 2, 2}[static_cast<size_t>(place)];
    CHECK(mismatch(got.gradients[owner].narrow(0, place * size, size),
                   want.gradients[owner].narrow(0, place * size, size), {1e-15, 1e-14}) == "");
  }
}

TEST_CASE("The sum over ranks is the mean before its division", "[optim][distributed]") {
  const std::vector<std::vector<size_t>> used = {kAll, kBackwards, kSome};
  const Reduced mean = reduce({}, used), sum = reduce({.mean_over_ranks = false}, used);
  CHECK(mean.gradients[1].equal(sum.gradients[1] / 3));
}

TEST_CASE("Compressed gradients are the mean, rounded, and the same on all ranks", "[optim][distributed]") {
  const std::vector<std::vector<size_t>> used = {kAll, kAll, kAll};
  const Reduced want = reduce({}, used);
  for (const auto& [word, tolerance] : {std::pair{"fp16", testing::kHalf}, std::pair{"bf16", testing::kBFloat16}}) {
    const Reduced got =
        reduce({.bucket_bytes = 200, .compression = value_named<GradientCompression>(word).value()}, used);
    CHECK(mismatch(got.gradients[0], want.gradients[0], tolerance) == "");
    CHECK_FALSE(got.gradients[0].equal(want.gradients[0]));
    for (size_t rank = 1; rank < 3; ++rank) CHECK(got.gradients[rank].equal(got.gradients[0]));
  }
}

TEST_CASE("Ranks whose parameters differ are told the first one", "[optim][distributed]") {
  std::vector<std::optional<std::string>> before(3), after(3), fixed(3);
  on_ranks(3, [&](int rank, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
    const auto r = static_cast<size_t>(rank);
    Chain model;
    const DataParallel parallel(group, model.parameters);
    before[r] = parallel.first_difference();
    {
      const at::NoGradGuard no_grad;
      if (rank != 1) model.parameters[4].tensor.add_(1e-15 * rank);
      if (rank == 2) model.parameters[3].tensor.index_put_({at::zeros({1}, at::kLong), at::zeros({1}, at::kLong)}, 7.0);
    }
    after[r] = parallel.first_difference();
    DataParallel(group, model.parameters).broadcast_parameters();
    fixed[r] = parallel.first_difference();
  });
  for (size_t rank = 0; rank < 3; ++rank) {
    CHECK(before[rank] == std::nullopt);
    CHECK(after[rank] == "layer.3 differs from rank 0's on rank 2");
    CHECK(fixed[rank] == std::nullopt);
  }
}

TEST_CASE("A parameter in two backwards of the last micro-step is refused once its bucket is gone",
          "[optim][distributed]") {
  const auto twice = [](int64_t bucket_bytes) {
    on_ranks(2, [&](int, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
      Chain model;
      DataParallel parallel(group, model.parameters, {.bucket_bytes = bucket_bytes});
      const Tensor x = at::ones({2, 5}, at::kDouble);
      parallel.expect_reduction(true);
      model.loss(x, {5}).backward();
      model.loss(x, {5, 4, 3, 2, 1}).backward();
      parallel.finish();
    });
  };
  CHECK_THROWS_WITH(twice(100), testing::Contains("layer.5 got a gradient in the last backward after it was reduced"));
  CHECK_NOTHROW(twice(1 << 20));  // one bucket, which was never full
}

TEST_CASE("Options of data parallel that cannot be are refused", "[unit][optim]") {
  const Chain model;
  CHECK_THROWS_WITH(DataParallel(nullptr, {}), testing::Contains("no parameters"));
  CHECK_THROWS_WITH(DataParallel(nullptr, {{"a", at::ones({2})}, {"b", at::ones({2})}}),
                    testing::Contains("all 2 parameters are frozen (no requires_grad); expected one to train"));
  CHECK_THROWS_WITH(DataParallel(nullptr, {model.parameters[0], {"tied", model.parameters[0].tensor}}),
                    testing::Contains("layer.0 and tied are one tensor"));
  CHECK_THROWS_WITH(DataParallel(nullptr, model.parameters, {.bucket_bytes = 0}),
                    testing::Contains("bucket_bytes is 0"));
  CHECK_THROWS_WITH(DataParallel(nullptr, model.parameters, {.owners = {0}}),
                    testing::Contains("1 owners for 6 parameters"));
  CHECK_THROWS_WITH(DataParallel(nullptr, model.parameters, {.owners = {0, 0, 0, 0, 0, 1}}),
                    testing::Contains("rank 1 of 1"));
}

}  // namespace bert
