// Optimizer state divided over ranks: the same weights as undivided, less memory, one checkpoint for any number of
// ranks.
#include "optim/sharded_optimizer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "app/plan/memory.h"
#include "model/bert.h"
#include "optim/amp.h"
#include "optim/data_parallel.h"
#include "optim/moment_optimizer.h"
#include "tests/support/gloo_ranks.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::on_ranks;
using torch::Tensor;

/// Parameters of several sizes and layers, of which some do not decay.
std::vector<NamedParameter> make_parameters(at::ScalarType dtype) {
  std::vector<NamedParameter> result;
  int64_t seed = 1;
  for (const auto& [name, shape] :
       std::vector<std::pair<std::string, std::vector<int64_t>>>{{"embeddings.weight", {40, 8}},
                                                                 {"layer.0.dense.weight", {8, 16}},
                                                                 {"layer.0.dense.bias", {16}},
                                                                 {"layer.1.LayerNorm.weight", {16}},
                                                                 {"layer.1.output.weight", {16, 8}},
                                                                 {"output.bias", {8}}}) {
    const int64_t numel = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    const Tensor value = (at::arange(numel, at::kDouble) * (0.37 + static_cast<double>(seed++))).sin().view(shape);
    result.push_back({name, value.to(dtype).requires_grad_()});
  }
  return result;
}

struct Setting {
  OptimizerConfig config;
  at::ScalarType dtype = at::kFloat;
  int steps = 4;
  int inf_step = -1;      // step in which rank 1's gradients of layer.0.dense.bias and later parameters are inf
  double scale = 1024.0;  // of the loss
};

struct Outcome {
  std::vector<Tensor> parameters;
  double grad_norm = 0;
  int64_t applied_steps = 0;
  int64_t state_bytes = 0;
  StateDict state;
  std::optional<std::string> non_finite;
};

void take_steps(const Setting& setting, int first, int steps, const std::vector<NamedParameter>& parameters,
                DataParallel& parallel, BertOptimizer& optimizer, Outcome& outcome) {
  const at::NoGradGuard no_grad;
  for (int step = first; step < first + steps; ++step) {
    parallel.zero_gradients();
    parallel.expect_reduction(true);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Tensor grad = parameters[i].tensor.grad();
      const double frequency = 1.7 + static_cast<double>(step) + 0.1 * static_cast<double>(i);
      Tensor value = (at::arange(grad.numel(), at::kDouble) * frequency).cos().view(grad.sizes());
      // Every rank contributes a share, in numbers whose sum is exact in any order.
      value = (value * 4096.0).round() / 4096.0 * static_cast<double>(parallel.rank() + 1);
      grad.copy_(value * setting.scale);
    }
    if (step == setting.inf_step && parallel.rank() == 1) {
      for (size_t i = 2; i < parameters.size(); ++i) parameters[i].tensor.grad().select(0, 0).fill_(INFINITY);
    }
    parallel.finish();
    optimizer.apply({.lr = at::scalar_tensor(2e-3F),
                     .inv_scale = at::scalar_tensor(static_cast<float>(1.0 / setting.scale)),
                     .found_inf = {}});
    if (step == setting.inf_step) outcome.non_finite = optimizer.first_non_finite_gradient();
  }
  outcome.grad_norm = optimizer.grad_norm().item<double>();
  outcome.applied_steps = optimizer.applied_steps().item<int64_t>();
  outcome.state_bytes = optimizer.state_bytes();
  outcome.parameters.clear();
  for (const auto& [name, tensor] : parameters) outcome.parameters.push_back(tensor.detach().clone());
}

/// The outcome of the steps on each rank; the state is rank 0's.
std::vector<Outcome> train(const Setting& setting, int ranks, bool sharded) {
  std::vector<Outcome> result(static_cast<size_t>(ranks));
  on_ranks(ranks, [&](int rank, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
    Outcome& outcome = result[static_cast<size_t>(rank)];
    const std::vector<NamedParameter> parameters = make_parameters(setting.dtype);
    const std::vector<int> owners = sharded ? assign_owners(parameters, ranks) : std::vector<int>();
    DataParallel parallel(group, parameters, {.bucket_bytes = 256, .owners = owners});
    const auto optimizer = sharded ? make_sharded_optimizer(group, setting.config, parameters, owners)
                                   : make_optimizer(setting.config, parameters);
    take_steps(setting, 0, setting.steps, parameters, parallel, *optimizer, outcome);
    for (const auto& item : optimizer->state_dict()) outcome.state.insert(item.key(), item.value().clone());
  });
  return result;
}

bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  bool equal = a.size() == b.size();
  for (size_t i = 0; equal && i < a.size(); ++i) equal = a[i].equal(b[i]);
  return equal;
}

bool same(const StateDict& a, const StateDict& b) {
  bool equal = a.size() == b.size();
  for (const auto& item : a) equal = equal && b.contains(item.key()) && item.value().equal(b[item.key()]);
  return equal;
}

}  // namespace

TEST_CASE("Owners are runs of parameters, last first, balanced by size", "[unit][optim]") {
  const auto parameters = make_parameters(at::kFloat);  // 320, 128, 16, 16, 128, 8 elements
  CHECK(assign_owners(parameters, 1) == std::vector{0, 0, 0, 0, 0, 0});
  CHECK(assign_owners(parameters, 2) == std::vector{1, 0, 0, 0, 0, 0});
  CHECK(assign_owners(parameters, 3) == std::vector{2, 1, 0, 0, 0, 0});
  CHECK(assign_owners(parameters, 6) == std::vector{5, 4, 3, 2, 1, 0});
  CHECK_THROWS_WITH(assign_owners(parameters, 7), testing::Contains("7 ranks for 6 parameters"));
}

TEST_CASE("A plan gives the largest share of a sharded state the memory that its owner needs", "[unit][optim]") {
  PretrainConfig config;
  config.distributed.shard_optimizer_state = true;
  const BertForPreTraining model(config.model);
  std::vector<NamedParameter> parameters;
  std::vector<int64_t> sizes;
  for (const auto& item : model->named_parameters()) {
    parameters.push_back({item.key(), item.value()});
    sizes.push_back(item.value().numel());
  }
  CHECK(parameter_sizes(config.model) == sizes);
  std::vector<int64_t> without_pairs;
  for (const torch::Tensor& parameter : BertForPreTraining(config.model, /*sentence_pair_head=*/false)->parameters()) {
    without_pairs.push_back(parameter.numel());
  }
  CHECK(parameter_sizes(config.model, /*sentence_pair_head=*/false) == without_pairs);
  for (const int ranks : {2, 8, 64}) {
    CAPTURE(ranks);
    const std::vector<int> owners = assign_owners(parameters, ranks);
    std::vector<int64_t> owned(static_cast<size_t>(ranks));
    for (size_t i = 0; i < owners.size(); ++i) owned[static_cast<size_t>(owners[i])] += sizes[i];
    const auto most = static_cast<double>(*std::ranges::max_element(owned));
    CHECK(plan_memory(config, sizes, {.tokens = 128, .masked = 20}, ranks).optimizer ==
          testing::Approx(8 * most));  // two fp32 moments
  }
}

TEST_CASE("Sharded optimizer state gives the bits of whole state", "[optim][distributed]") {
  std::vector<Setting> settings;
  for (const char* type : {"lamb", "adamw", "adam", "bert_adam", "stable_adamw"})
    settings.push_back({.config = {.type = value_named<OptimizerType>(type).value()}});
  settings.push_back({.config = {.type = OptimizerType::kLamb, .max_grad_norm = 1e6}});  // no clipping
  settings.push_back(
      {.config = {.type = OptimizerType::kLamb, .use_nvlamb = true, .layer_lr_decay = 0.9, .ema_decay = 0.9}});
  settings.push_back({.config = {.type = OptimizerType::kLamb}, .dtype = at::kDouble});
  settings.push_back({.config = {.type = OptimizerType::kAdamW, .ema_decay = 0.5}, .dtype = at::kBFloat16});
  settings.push_back({.config = {.type = OptimizerType::kLamb}, .dtype = at::kHalf, .inf_step = 2});
  for (const Setting& setting : settings) {
    CAPTURE(setting.config.type, setting.dtype, setting.config.max_grad_norm);
    const std::vector<Outcome> whole = train(setting, 2, false);
    const std::vector<Outcome> sharded = train(setting, 2, true);
    for (const Outcome& outcome : sharded) {
      CHECK(same(outcome.parameters, whole[0].parameters));
      CHECK(outcome.grad_norm == whole[0].grad_norm);
      CHECK(outcome.applied_steps == setting.steps - (setting.inf_step >= 0 ? 1 : 0));
      CHECK(outcome.non_finite == whole[0].non_finite);
      CHECK(outcome.non_finite.value_or("") == (setting.inf_step >= 0 ? "layer.0.dense.bias" : ""));
    }
    CHECK(same(sharded[0].state, whole[0].state));
    CHECK(sharded[1].state.is_empty());
  }
}

TEST_CASE("Each rank keeps the state of its own parameters only", "[optim][distributed]") {
  // 616 elements. With bf16 weights each has 4 fp32 numbers (two moments, master, moving average); in addition the
  // int64 step.
  const Setting setting{.config = {.type = OptimizerType::kLamb, .ema_decay = 0.9}, .dtype = at::kBFloat16, .steps = 1};
  CHECK(train(setting, 1, false)[0].state_bytes == 616 * 16 + 8);
  const std::vector<Outcome> three = train(setting, 3, true);
  CHECK(three[0].state_bytes == (8 + 128 + 16 + 16) * 16 + 8);
  CHECK(three[1].state_bytes == 128 * 16 + 8);
  CHECK(three[2].state_bytes == 320 * 16 + 8);
}

TEST_CASE("A sharded state goes on with other ranks, or without sharding", "[optim][distributed]") {
  const Setting setting{.config = {.type = OptimizerType::kLamb, .ema_decay = 0.9}, .dtype = at::kHalf};
  const StateDict state = train(setting, 3, true)[0].state;
  const auto go_on = [&](int ranks, bool sharded) {
    std::vector<Outcome> result(static_cast<size_t>(ranks));
    on_ranks(ranks, [&](int rank, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
      const std::vector<NamedParameter> parameters = make_parameters(setting.dtype);
      const std::vector<int> owners = sharded ? assign_owners(parameters, ranks) : std::vector<int>();
      DataParallel parallel(group, parameters, {.owners = owners});
      const auto optimizer = sharded ? make_sharded_optimizer(group, setting.config, parameters, owners)
                                     : make_optimizer(setting.config, parameters);
      optimizer->load_state_dict(state);
      take_steps(setting, setting.steps, 2, parameters, parallel, *optimizer, result[static_cast<size_t>(rank)]);
    });
    return result;
  };
  // Both have gradients of two ranks, so that the sums are the same.
  const std::vector<Outcome> whole = go_on(2, false), sharded = go_on(2, true);
  for (const Outcome& outcome : sharded) CHECK(same(outcome.parameters, whole[0].parameters));
  CHECK(whole[0].applied_steps == 6);
  CHECK(sharded[1].applied_steps == 6);
}

TEST_CASE("step() of sharded state takes each group's rate as it is now", "[optim][distributed]") {
  const auto stepped = [](bool sharded) {
    std::vector<std::vector<Tensor>> result(2);
    on_ranks(2, [&](int rank, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
      const std::vector<NamedParameter> parameters = make_parameters(at::kFloat);
      const auto optimizer = sharded ? make_sharded_optimizer(group, {}, parameters, assign_owners(parameters, 2))
                                     : make_optimizer({}, parameters);
      for (const auto& [name, tensor] : parameters) tensor.mutable_grad() = tensor.detach().cos();
      for (auto& parameter_group : optimizer->param_groups()) {
        auto& options = static_cast<GroupOptions&>(parameter_group.options());
        options.set_lr(options.config.weight_decay > 0.0 ? 1e-2 : 3e-3);
      }
      optimizer->step();
      for (const auto& [name, tensor] : parameters) result[static_cast<size_t>(rank)].push_back(tensor.detach());
    });
    return result;
  };
  const auto whole = stepped(false), sharded = stepped(true);
  CHECK(same(sharded[0], whole[0]));
  CHECK(same(sharded[1], whole[0]));
  CHECK_FALSE(same(whole[0], [] {
    std::vector<Tensor> start;
    for (const auto& [name, tensor] : make_parameters(at::kFloat)) start.push_back(tensor.detach());
    return start;
  }()));
}

TEST_CASE("Owners that are no ranks or leave one without parameters, and frozen parameters, are refused",
          "[optim][distributed]") {
  on_ranks(2, [&](int rank, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
    if (rank != 0) return;  // only one thread may use assertions
    const std::vector<NamedParameter> parameters = make_parameters(at::kFloat);
    CHECK_THROWS_WITH(make_sharded_optimizer(group, {}, parameters, {0, 0, 0, 0, 1, 2}),
                      testing::Contains("owner 2, expected 0 to 1"));
    CHECK_THROWS_WITH(make_sharded_optimizer(group, {}, parameters, {0, 0, 0, 0, 0, 0}),
                      testing::Contains("rank 1 owns no parameter"));
    parameters[2].tensor.requires_grad_(false);
    CHECK_THROWS_WITH(make_sharded_optimizer(group, {}, parameters, assign_owners(parameters, 2)),
                      testing::Contains("layer.0.dense.bias is frozen (no requires_grad) and gets no gradient; leave"));
  });
}

TEST_CASE("Ranks that unscale first keep one loss scale", "[optim][distributed]") {
  std::vector<float> scales(2);
  on_ranks(2, [&](int rank, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
    const std::vector<NamedParameter> parameters = make_parameters(at::kFloat);
    const auto optimizer = make_sharded_optimizer(group, {}, parameters, assign_owners(parameters, 2));
    GradScaler scaler({.init_scale = 1024.0}, at::kCPU);
    for (const auto& [name, tensor] : parameters) tensor.mutable_grad() = at::zeros_like(tensor);
    parameters[0].tensor.mutable_grad().fill_(INFINITY);  // in rank 1's gradient
    scaler.unscale_(*optimizer);
    scaler.step(*optimizer);
    scaler.update();
    scales[static_cast<size_t>(rank)] = scaler.current_scale().item<float>();
  });
  CHECK(scales == std::vector{512.0F, 512.0F});
}

TEST_CASE("A sharded state that does not fit is refused with the list", "[optim][distributed]") {
  const Setting setting{.config = {.type = OptimizerType::kAdamW}, .steps = 1};
  StateDict state = train(setting, 1, false)[0].state;
  StateDict wrong;
  for (const auto& item : state) {
    if (item.key() != "exp_avg.layer.0.dense.bias") wrong.insert(item.key(), item.value());
  }
  wrong.insert("exp_avg.other", at::zeros({1}));
  CHECK_THROWS_WITH(
      on_ranks(2,
               [&](int, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
                 const auto parameters = make_parameters(at::kFloat);
                 const auto owners = assign_owners(parameters, 2);
                 make_sharded_optimizer(group, setting.config, parameters, owners)->load_state_dict(wrong);
               }),
      testing::Contains("missing: exp_avg.layer.0.dense.bias") && testing::Contains("extra: exp_avg.other"));
}

TEST_CASE("The moving averages of sharded state are whole on every rank", "[optim][distributed]") {
  const Setting setting{.config = {.type = OptimizerType::kLamb, .ema_decay = 0.9}};
  std::vector<bool> right(3), restored(3);
  on_ranks(3, [&](int rank, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
    const std::vector<NamedParameter> parameters = make_parameters(setting.dtype);
    const std::vector<int> owners = assign_owners(parameters, 3);
    DataParallel parallel(group, parameters, {.owners = owners});
    const auto optimizer = make_sharded_optimizer(group, setting.config, parameters, owners);
    Outcome outcome;
    take_steps(setting, 0, 3, parameters, parallel, *optimizer, outcome);
    const std::vector<WeightEma> emas = optimizer->emas();
    bool equal = emas.size() == parameters.size();
    {
      const EmaWeights ema_weights(*optimizer);
      for (size_t i = 0; equal && i < emas.size(); ++i) equal = parameters[i].tensor.equal(emas[i].ema);
      equal = equal && !parameters[0].tensor.equal(outcome.parameters[0]);
    }
    right[static_cast<size_t>(rank)] = equal;
    std::vector<Tensor> now;
    for (const auto& [name, tensor] : parameters) now.push_back(tensor.detach());
    restored[static_cast<size_t>(rank)] = same(now, outcome.parameters);
  });
  for (size_t rank = 0; rank < 3; ++rank) {
    CHECK(right[rank]);
    CHECK(restored[rank]);
  }
}

}  // namespace bert
