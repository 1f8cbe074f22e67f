// CUDA against the CPU: every operator, a training step, the optimizers, a resumed run.
#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/cuda.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/files.h"
#include "app/system/exit_codes.h"
#include "app/train/pretrain.h"
#include "app/train/step/training_step.h"
#include "cuda_ext/compat.h"
#include "cuda_ext/dispatch/dropout.h"
#include "cuda_ext/ops.h"
#include "cuda_ext/padded_linear.h"
#include "data/io/files.h"
#include "model/state_dict.h"
#include "tests/support/device_under_test.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

namespace bert {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using testing::TemporaryDirectory;
using testing::Tolerance;

Tolerance tolerance(at::ScalarType type) {
  return type == at::kDouble  ? testing::kDouble
         : type == at::kFloat ? testing::kFloat
         : type == at::kHalf  ? testing::kHalf
                              : testing::kBFloat16;
}

/// Empty if every |got - want| <= scale * (absolute * max(1, largest |want|) + relative * |want|); else describes the
/// worst.
std::string mismatch(const Tensor& got_on_device, const Tensor& want, at::ScalarType type, double scale) {
  const Tensor got = got_on_device.to(at::kCPU);
  if (got.sizes() != want.sizes()) return c10::str("sizes ", got.sizes(), " want ", want.sizes());
  if (got.scalar_type() != want.scalar_type()) return c10::str(got.scalar_type(), " want ", want.scalar_type());
  if (got.numel() == 0) return "";
  const Tolerance limit = tolerance(type);
  const Tensor g = got.to(at::kDouble).flatten(), w = want.to(at::kDouble).flatten();
  const double size = std::max(1.0, w.abs().max().item<double>());
  const Tensor excess = ((g - w).abs() - scale * (limit.absolute * size + limit.relative * w.abs())).nan_to_num(1e30);
  const int64_t worst = excess.argmax().item<int64_t>();
  if (excess[worst].item<double>() <= 0.0) return "";
  return c10::str("index ", worst, " of ", got.sizes(), ": got ", g[worst].item<double>(), ", want ",
                  w[worst].item<double>());
}

Tensor randn(at::IntArrayRef sizes, uint64_t seed) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed), at::kDouble);
}
Tensor integers(int64_t high, int64_t count, uint64_t seed) {
  return at::randint(high, {count}, at::detail::createCPUGenerator(seed), at::kLong);
}
ops::Dropout drop(double p, const Tensor& keys, int64_t site = 1040) {
  return {.p = p, .seed = 11, .site = site, .keys = keys};
}

/// An operator and its inputs: activations in the tested dtype, parameters in it or in fp32, integers unchanged.
struct Case {
  std::string name;
  std::function<Tensor(const Tensors& activations, const Tensors& parameters, const Tensors& integers)> op;
  Tensors activations, parameters, integers;
  double scale = 1.0;  // of the tolerance
};

/// The epsilon of the layer norms, large enough to be seen in their results.
constexpr double kEps = 0.1;

/// `x` with a constant first row, whose variance is 0: eps alone decides its gradients.
Tensor with_constant_row(Tensor x) {
  if (x.size(0) > 0) x.select(0, 0).fill_(0.75);
  return x;
}

std::vector<Case> cases(int64_t tokens, int64_t width) {
  const Tensor keys = at::arange(tokens, at::kLong) + (int64_t{5} << 16);
  std::vector<Case> result;
  for (const bool tanh : {true, false}) {
    result.push_back({tanh ? "bias_gelu tanh" : "bias_gelu erf",
                      [=](const Tensors& a, const Tensors& p, const Tensors&) {
                        return ops::bias_gelu(a[0], p[0], tanh ? ops::Gelu::kTanh : ops::Gelu::kErf);
                      },
                      {3 * randn({tokens, width}, 1)},
                      {randn({width}, 2)},
                      {}});
  }
  result.push_back(
      {"layer_norm",
       [](const Tensors& a, const Tensors& p, const Tensors&) { return ops::layer_norm(a[0], p[0], p[1], kEps); },
       {with_constant_row(2 * randn({tokens, width}, 1) + 3)},
       {randn({width}, 2), randn({width}, 3)},
       {},
       4.0});  // 1 / std amplifies rounding
  for (const double p : {0.0, 0.2}) {
    const std::string suffix = p > 0.0 ? " with dropout" : "";
    result.push_back({"bias_dropout_residual_layer_norm" + suffix,
                      [=](const Tensors& a, const Tensors& q, const Tensors& i) {
                        return ops::bias_dropout_residual_layer_norm(a[0], q[0], a[1], q[1], q[2], kEps, drop(p, i[0]));
                      },
                      {randn({tokens, width}, 1), randn({tokens, width}, 3)},
                      {randn({width}, 2), randn({width}, 4), randn({width}, 5)},
                      {keys},
                      4.0});              // 1 / std amplifies rounding
    for (const int64_t types : {2, 5}) {  // the fused kernel has the gradients of two
      result.push_back({"embedding_layer_norm_dropout of " + std::to_string(types) + " types" + suffix,
                        [=](const Tensors& a, const Tensors& q, const Tensors& i) {
                          return ops::embedding_layer_norm_dropout(i[1], i[2], i[3], {a[0], a[1], a[2]}, q[0], q[1],
                                                                   kEps, drop(p, i[0]));
                        },
                        {randn({11, width}, 4), randn({9, width}, 5), randn({types, width}, 6)},
                        {randn({width}, 7), randn({width}, 8)},
                        {keys, integers(11, tokens, 1), integers(9, tokens, 2), integers(types, tokens, 3)},
                        8.0});  // 1 / std, and sums over equal ids
    }
    // Two sequences, the second half as long: its rest is padding.
    const int64_t second = (tokens + 1) / 2, heads = 1 + width % 3;
    result.push_back({"masked_softmax_dropout" + suffix,
                      [=](const Tensors& a, const Tensors&, const Tensors& i) {
                        return ops::masked_softmax_dropout(a[0], i[0], 0.3, drop(p, i[1]));
                      },
                      {4 * randn({2, heads, tokens, tokens}, 1)},
                      {},
                      {at::tensor({int64_t{0}, tokens, tokens + second}).to(at::kInt), at::arange(tokens + second)}});
    result.push_back(
        {"dropout" + suffix,
         [=](const Tensors& a, const Tensors&, const Tensors& i) { return ops::dropout(a[0], drop(p, i[0])); },
         {randn({tokens, width}, 1)},
         {},
         {keys}});
  }
  result.push_back({"linear",
                    [](const Tensors& a, const Tensors&, const Tensors&) { return ops::linear(a[0], a[1], a[2]); },
                    {randn({tokens, width}, 1), randn({96, width}, 2), randn({96}, 3)},
                    {},
                    {},
                    8.0});  // sums of products
  result.push_back(
      {"padded_linear",
       [](const Tensors& a, const Tensors&, const Tensors&) { return ops::padded_linear(a[0], a[1], a[2], 56); },
       {randn({tokens, width}, 1), randn({50, width}, 2), randn({50}, 3)},
       {},
       {},
       8.0});  // sums of products
  result.push_back({"qkv_linear",
                    [](const Tensors& a, const Tensors&, const Tensors&) {
                      return ops::qkv_linear(a[0], {a[1], a[2], a[3], a[4], a[5], a[6]});
                    },
                    {randn({tokens, width}, 1), randn({width, width}, 2), randn({width, width}, 3),
                     randn({width, width}, 4), randn({width}, 5), randn({width}, 6), randn({width}, 7)},
                    {},
                    {},
                    8.0});  // sums of products
  const int64_t classes = std::max<int64_t>(1, width - 3);
  result.push_back(
      {"cross_entropy",
       [=](const Tensors& a, const Tensors&, const Tensors& i) { return ops::cross_entropy(a[0], i[0], classes); },
       {4 * randn({tokens, width}, 1)},
       {},
       {integers(classes, tokens, 3)},
       4.0});  // a sum over the classes
  return result;
}

struct Result {
  Tensor y;
  Tensors gradients;  // of activations and parameters
};

Result evaluate(const Case& test, at::ScalarType activations, at::ScalarType parameters, c10::Device device) {
  Tensors leaves;
  const auto move = [&](const Tensors& inputs, at::ScalarType type) {
    Tensors moved;
    for (const Tensor& input : inputs) {
      moved.push_back(input.to(activations).to(type).to(device).requires_grad_(true));
      leaves.push_back(moved.back());
    }
    return moved;
  };
  const Tensors a = move(test.activations, activations), p = move(test.parameters, parameters);
  Tensors i;
  for (const Tensor& input : test.integers) i.push_back(input.to(device));
  const Tensor y = test.op(a, p, i);
  const Tensor upstream = at::linspace(-1, 1, y.numel(), at::kDouble).mul(7).sin().view(y.sizes());
  return {y.detach(), torch::autograd::grad({y}, leaves, {upstream.to(y.options())}, std::nullopt, false, true)};
}

/// Output and gradients on the device against the CPU's, of activations and parameters in each dtype.
void check_case(const Case& test, const std::string& shape, c10::Device device) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    for (const auto parameters : {type, at::kFloat}) {
      if (parameters != type && (test.parameters.empty() || type == at::kDouble)) continue;
      if (type == at::kFloat && parameters != type) continue;
      // Products in fp16 run on the device only: on the CPU their sums round after every block.
      if ((type == at::kHalf || type == at::kDouble) && test.name.find("linear") != std::string::npos) continue;
      INFO(test.name << " " << type << " parameters " << parameters << " " << shape);
      const Result got = evaluate(test, type, parameters, device), want = evaluate(test, type, parameters, c10::kCPU);
      CHECK(mismatch(got.y, want.y, type, test.scale) == "");
      for (size_t i = 0; i < want.gradients.size(); ++i) {
        INFO("gradient " << i);
        CHECK(mismatch(got.gradients[i], want.gradients[i], type, 2 * test.scale) == "");
      }
    }
  }
}

/// The cases of these sizes whose names contain `part`, and not `without`.
void check_cases(int64_t tokens, int64_t width, c10::Device device, const std::string& part = "",
                 const std::string& without = "nothing") {
  int checked = 0;
  for (const Case& test : cases(tokens, width)) {
    if (test.name.find(part) == std::string::npos || test.name.find(without) != std::string::npos) continue;
    check_case(test, c10::str("[", tokens, ", ", width, "]"), device);
    ++checked;
  }
  CHECK(checked > 0);
}

TEST_CASE("Every operator on CUDA equals its CPU twin", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  for (const int64_t width : {7, 70, 128, 312, 768, 1024}) {
    DYNAMIC_SECTION("rows of " << width) {  // tests/gpu.sh chooses one
      for (const int64_t tokens : {1, 5, 67}) check_cases(tokens, width, device);
    }
  }
}

TEST_CASE("Operators on CUDA work on another device than the current one, on its current stream", "[cuda]") {
  BERT_DEVICE_OR_SKIP(first);
  if (torch::cuda::device_count() < 2) BERT_SKIP("there is one GPU");
  const c10::impl::VirtualGuardImpl cuda(c10::kCUDA);
  const c10::Device device(c10::kCUDA, 1);
  for (const c10::Stream& stream : {cuda.getStream(device), cuda.getStreamFromGlobalPool(device)}) {
    const c10::Stream before = cuda.exchangeStream(stream);
    check_cases(5, 128, device);
    check_cases(0, 128, device, "bias_gelu");
    check_case({"attention",
                [](const Tensors& a, const Tensors&, const Tensors& i) { return ops::attention(a[0], i[0], 3, 2, {}); },
                {randn({5, 3 * 16}, 1)},
                {},
                {at::tensor({0, 2, 5}, at::kInt)},
                4.0},  // two products, each of rounded inputs
               "two sequences", device);
    cuda.synchronizeStream(stream);
    cuda.exchangeStream(before);
    CHECK(cuda.getDevice() == first);
  }
}

TEST_CASE("The kernels that serve large sizes equal their CPU twins", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  // Rows of 2,048 fill a block of layer_norm_row_backward_kernel; longer ones are read again for every statistic.
  for (const int64_t width : {2048, 4096}) check_cases(5, width, device, "", "linear");
  // Groups of 8 and of 16 lanes for a row of scores.
  for (const int64_t tokens : {64, 128}) check_cases(tokens, 8, device, "masked_softmax");
  // 6,000 keys to sort, each of them hundreds of times.
  check_cases(3000, 128, device, "embedding");
  // Four vectors of each of 512 threads are 16,384 logits: a second turn.
  constexpr int64_t kClasses = 30522;
  check_case(
      {"cross_entropy",
       [](const Tensors& a, const Tensors&, const Tensors& i) { return ops::cross_entropy(a[0], i[0], kClasses); },
       {4 * randn({5, kClasses}, 1)},
       {},
       {integers(kClasses, 5, 3)},
       4.0},  // a sum over the classes
      "[5, 30522]", device);
}

TEST_CASE("Empty tensors pass through every operator on CUDA", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  for (const Case& test : cases(0, 128)) {
    INFO(test.name);
    const Result got = evaluate(test, at::kBFloat16, at::kFloat, device);
    CHECK(got.y.is_floating_point());
    for (const Tensor& gradient : got.gradients) CHECK_FALSE(gradient.isnan().any().item<bool>());
  }
}

/// Packed sequences of these lengths.
struct Lengths {
  explicit Lengths(const std::vector<int32_t>& lengths) {
    std::vector<int32_t> ends = {0};
    for (const int32_t length : lengths) ends.push_back(ends.back() + length);
    cu_seqlens = at::tensor(ends, at::kInt);
    tokens = ends.back();
    longest = *std::max_element(lengths.begin(), lengths.end());
  }
  Tensor cu_seqlens;
  int64_t tokens = 0, longest = 0;
};

TEST_CASE("Attention on CUDA equals its CPU twin for every head size and length", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  // A sequence may be empty. Equal lengths are cuDNN's, if it is there.
  for (const Lengths& lengths : {Lengths({1}), Lengths({64, 128}), Lengths({3, 130, 1, 65}), Lengths({512}),
                                 Lengths({5, 0, 13, 3}), Lengths({64, 64, 64})}) {
    for (const auto& [heads, head_size] :
         std::vector<std::pair<int64_t, int64_t>>{{2, 64}, {3, 26}, {1, 1}, {1, 8}, {1, 200}}) {
      for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
        INFO(type << " " << heads << " heads of " << head_size << ", " << lengths.tokens << " tokens");
        const Case test{"attention",
                        [&, num_heads = heads](const Tensors& a, const Tensors&, const Tensors&) {
                          return ops::attention(a[0], lengths.cu_seqlens.to(a[0].device()), lengths.longest, num_heads,
                                                {});
                        },
                        {randn({lengths.tokens, 3 * heads * head_size}, 1)},
                        {},
                        {},
                        4.0};  // two products, each of rounded inputs
        const Result got = evaluate(test, type, type, device), want = evaluate(test, type, type, c10::kCPU);
        CHECK(mismatch(got.y, want.y, type, test.scale) == "");
        CHECK(mismatch(got.gradients[0], want.gradients[0], type, test.scale) == "");
      }
    }
  }
}

TEST_CASE("Attention's backward on CUDA drops what its forward dropped, whatever was switched since", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const bool deterministic_forward = GENERATE(false, true);  // deterministic attention is not cuDNN's
  const auto set_deterministic = [](bool on) { at::globalContext().setDeterministicAlgorithms(on, false); };
  struct Batch {
    Lengths lengths;
    double p;
  };
  // cuDNN, if it is chosen, takes equal lengths and a multiple of 1/16.
  for (const Batch& c : {Batch{Lengths({130, 1, 65, 128}), 0.3}, Batch{Lengths({64, 64, 64}), 0.25}}) {
    for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      INFO(type << ", dropout " << c.p << (deterministic_forward ? ", deterministic in forward alone" : ""));
      constexpr int64_t kHeads = 2, kHidden = 128;
      const Tensor keys = at::arange(c.lengths.tokens, at::kLong).to(device);
      const Tensor qkv = randn({c.lengths.tokens, 3 * kHidden}, 1).to(type).to(device).requires_grad_(true);
      const auto run = [&](double p) {
        return ops::attention(qkv, c.lengths.cu_seqlens.to(device), c.lengths.longest, kHeads, drop(p, keys));
      };
      set_deterministic(deterministic_forward);
      const Tensor out = run(c.p);
      set_deterministic(!deterministic_forward);
      CHECK_FALSE(at::allclose(out, run(0.0)));
      // For a fixed mask the output is linear in the values: sum(grad * out) = sum(dvalue * value).
      const Tensor grad = randn({c.lengths.tokens, kHidden}, 2).to(type).to(device);
      const Tensor dqkv = torch::autograd::grad({out}, {qkv}, {grad}).front();
      set_deterministic(false);
      const auto part = [&](const Tensor& x) { return x.detach().narrow(1, 2 * kHidden, kHidden).to(at::kDouble); };
      const double left = (grad.to(at::kDouble) * out.detach().to(at::kDouble)).sum().item<double>();
      const double right = (part(dqkv) * part(qkv)).sum().item<double>();
      const double size = (part(dqkv) * part(qkv)).abs().sum().item<double>();
      CHECK(std::abs(left - right) <= tolerance(type).relative * size);
    }
  }
}

TEST_CASE("Dropout masks on CUDA are those of the CPU, bit for bit", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const Tensor keys = at::arange(67, at::kLong) + (int64_t{1} << 40);
  for (const int64_t columns : {1, 7, 128, 1021}) {
    for (const double p : {0.1, 0.5, 0.999}) {
      CHECK(at::equal(dispatch::dropout_mask(keys.to(device), -5, 2064, columns, p).cpu(),
                      dispatch::dropout_mask(keys, -5, 2064, columns, p)));
      for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
        const Tensor x = at::ones({67, columns}, type);
        CHECK(at::equal(ops::dropout(x.to(device), drop(p, keys.to(device))).cpu(), ops::dropout(x, drop(p, keys))));
      }
    }
  }
}

TEST_CASE("The optimizers on CUDA take the steps that they take on the CPU", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const std::vector<std::vector<int64_t>> shapes = {{70, 33}, {1}, {1000}, {257, 129}, {33}};
  std::vector<c10::Device> devices = {c10::kCPU, device};
  if (torch::cuda::device_count() > 1) devices.emplace_back(c10::kCUDA, 1);  // another one than the current
  for (const char* type : {"lamb", "adamw"}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      INFO(type << " " << dtype);
      std::vector<StateDict> states;
      std::vector<Tensors> weights;
      for (const c10::Device where : devices) {
        std::vector<NamedParameter> parameters;
        for (size_t i = 0; i < shapes.size(); ++i) {
          parameters.push_back({"layer." + std::to_string(i) + (i % 2 == 0 ? ".weight" : ".bias"),
                                randn(shapes[i], i).to(dtype).to(where).requires_grad_(true)});
        }
        OptimizerConfig config;
        config.type = value_named<OptimizerType>(type).value();
        config.ema_decay = 0.6;
        const auto optimizer = make_optimizer(config, parameters);
        for (uint64_t step = 0; step < 4; ++step) {
          for (size_t i = 0; i < shapes.size(); ++i) {
            Tensor grad = randn(shapes[i], 100 * step + i).to(dtype);
            if (step == 2 && i == 3) grad.view(-1)[7] = INFINITY;  // this step is skipped
            parameters[i].tensor.mutable_grad() = grad.to(where);
          }
          const auto scalar = [&](double value) { return at::scalar_tensor(value, at::TensorOptions(where)); };
          optimizer->apply({.lr = scalar(1e-2), .inv_scale = scalar(0.5), .found_inf = {}});
          CHECK(optimizer->found_inf().item<float>() == (step == 2 ? 1.0F : 0.0F));
        }
        CHECK(optimizer->applied_steps().item<int64_t>() == 3);
        states.push_back(optimizer->state_dict());
        weights.emplace_back();
        for (const NamedParameter& parameter : parameters) weights.back().push_back(parameter.tensor.detach());
      }
      for (size_t d = 1; d < devices.size(); ++d) {
        INFO(devices[d]);
        for (size_t i = 0; i < shapes.size(); ++i) CHECK(mismatch(weights[d][i], weights[0][i], dtype, 1.0) == "");
        for (const auto& item : states[0]) {
          INFO(item.key());
          CHECK(mismatch(states[d][item.key()], item.value(), item.value().scalar_type(), 4.0) ==
                "");  // norms, products
        }
      }
    }
  }
}

TEST_CASE("The optimizers on CUDA give the same bits every time, for many tensors and large ones", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  constexpr int64_t kTensors = 200, kSteps = 20, kLarge = 8 << 20;  // elements: 512 chunks
  for (const char* type : {"lamb", "adamw"}) {
    INFO(type);
    std::vector<Tensors> weights;
    for (int run = 0; run < 2; ++run) {
      std::vector<NamedParameter> parameters;
      Tensors gradients;
      for (int64_t i = 0; i < kTensors; ++i) {
        const int64_t elements = i == 100 ? kLarge : 1 + 37 * i;
        const auto number = static_cast<double>(i);
        const Tensor value = at::arange(elements, at::TensorOptions(device).dtype(at::kFloat));
        parameters.push_back(
            {std::to_string(i) + ".weight", (value * 0.7 + number).sin().detach().requires_grad_(true)});
        gradients.push_back((value * 1.3 + number).cos());
      }
      const auto optimizer = make_optimizer({.type = value_named<OptimizerType>(type).value()}, parameters);
      const Tensor lr = at::full({}, 1e-2, at::TensorOptions(device));
      for (int64_t step = 0; step < kSteps; ++step) {
        for (size_t i = 0; i < gradients.size(); ++i) {
          parameters[i].tensor.mutable_grad() = gradients[i] * static_cast<double>(1 + step % 3);
        }
        optimizer->apply({.lr = lr, .inv_scale = {}, .found_inf = {}});
      }
      CHECK(optimizer->applied_steps().item<int64_t>() == kSteps);
      weights.emplace_back();
      for (const NamedParameter& parameter : parameters) weights.back().push_back(parameter.tensor.detach().cpu());
    }
    for (size_t i = 0; i < weights[0].size(); ++i) CHECK(at::equal(weights[0][i], weights[1][i]));
    CHECK(weights[0][100].isfinite().all().item<bool>());
  }
}

TEST_CASE("New gradients at every step cost no wait for the device, and no memory after the third", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  for (const char* type : {"lamb", "adamw"}) {
    for (const bool unscale_first : {false, true}) {
      INFO(type << (unscale_first ? ", unscaled first" : ""));
      std::vector<NamedParameter> parameters;
      for (int64_t i = 0; i < 3; ++i) {
        const Tensor value = randn({70 + i, 33}, static_cast<uint64_t>(i)).to(at::kFloat);
        parameters.push_back({std::to_string(i) + ".weight", value.to(device).requires_grad_(true)});
      }
      std::vector<Tensors> gradients(6);
      for (Tensors& of_step : gradients) {
        for (const NamedParameter& parameter : parameters) of_step.push_back(at::ones_like(parameter.tensor));
      }
      const auto optimizer =
          make_optimizer({.type = value_named<OptimizerType>(type).value(), .ema_decay = 0.9}, parameters);
      GradScaler scaler({.init_scale = 4.0}, device);
      const Tensor lr = at::full({}, 1e-3, at::TensorOptions(device));
      const auto step = [&](size_t number) {
        for (size_t i = 0; i < parameters.size(); ++i) parameters[i].tensor.mutable_grad() = gradients[number][i];
        if (unscale_first) scaler.unscale_(*optimizer);
        scaler.step(*optimizer, lr);
        scaler.update();
        optimizer->zero_grad();
      };
      for (size_t number = 0; number < 3; ++number) step(number);
      const int64_t allocations = compat::device_allocations(device);
      {
        const compat::ForbidSynchronization forbid;
        for (size_t number = 3; number < 6; ++number) CHECK_NOTHROW(step(number));
      }
      CHECK(compat::device_allocations(device) == allocations);
      CHECK(optimizer->applied_steps().item<int64_t>() == 6);
      for (const Tensors& of_step : gradients) {
        for (const Tensor& gradient : of_step) CHECK(gradient.use_count() == 1);
      }
    }
  }
}

PretrainConfig step_config(const std::string& precision) {
  PretrainConfig config;
  config.precision = value_named<Precision>(precision).value();
  config.model = {.vocab_size = 101,
                  .hidden_size = 64,
                  .num_hidden_layers = 2,
                  .num_attention_heads = 2,
                  .intermediate_size = 128,
                  .max_position_embeddings = 64};
  config.model.attention_probs_dropout_prob = 0.0;  // on CUDA its masks are those of LibTorch
  config.optimizer.type = OptimizerType::kAdamW;
  config.optimizer.lr = 1e-3;
  config.amp.init_scale = 1024;  // keeps gradients away from fp16's largest number, where rounding decides
  return config;
}

PackedBatch batch_of(const std::vector<int32_t>& sizes, int64_t first_sequence) {
  const Lengths lengths(sizes);
  const auto seed = static_cast<uint64_t>(first_sequence);
  std::vector<Tensor> positions, keys;
  for (size_t i = 0; i < sizes.size(); ++i) {
    positions.push_back(at::arange(sizes[i], at::kLong));
    keys.push_back(positions.back() + ((first_sequence + static_cast<int64_t>(i)) << 16));
  }
  PackedBatch batch;
  batch.input_ids = integers(101, lengths.tokens, seed);
  batch.token_type_ids = integers(2, lengths.tokens, seed + 1);
  batch.position_ids = at::cat(positions);
  batch.dropout_keys = at::cat(keys);
  batch.cu_seqlens = lengths.cu_seqlens;
  batch.max_seqlen = lengths.longest;
  batch.first_sequence = first_sequence;
  batch.masked_positions = at::arange(1, lengths.tokens, 5, at::kLong);
  batch.masked_ids = batch.input_ids.index_select(0, batch.masked_positions);
  batch.next_sentence_labels = integers(2, static_cast<int64_t>(sizes.size()), seed + 2);
  return batch;
}

TEST_CASE("Training steps on CUDA are those of the CPU", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  for (const char* precision : {"fp32", "bf16", "fp16", "bf16-weights"}) {
    INFO(precision);
    const PretrainConfig config = step_config(precision);
    TrainingStep on_device(config, device, nullptr), on_cpu(config, c10::kCPU, nullptr);
    const at::ScalarType type = compute_dtype(value_named<Precision>(precision).value());
    for (int64_t step = 0; step < 4; ++step) {
      const PackedBatch batch = batch_of({33, 7, 64, 1}, 4 * step);
      const PackedBatch moved = batch.to(device);
      on_device.run({&moved, 1});
      on_cpu.run({&batch, 1});
      const auto got = on_device.take_mean_loss(), want = on_cpu.take_mean_loss();
      INFO("step " << step);
      // The first step has equal weights, so its loss differs by rounding alone. Adam then divides each gradient by its
      // own size: where a gradient is all rounding, a weight moves by lr = 1e-3 in whichever direction rounding has, here
      // as there, and may be 2e-3 apart after each step. Such weights matter little, since their gradient is the loss'
      // slope in them, but their sum over some 1e5 weights, with curvature, is more than rounding: 1e-3 in fp32. A wrong
      // kernel shows in the first step, and in the twins of the operators.
      const double later = type == at::kFloat ? 1e-3 : tolerance(type).relative;
      const double limit = type == at::kFloat && step == 0 ? 1e-4 : later;
      CHECK(got.mlm == testing::Approx(want.mlm).epsilon(limit));
      CHECK(got.nsp == testing::Approx(want.nsp).epsilon(2 * limit));
    }
    CHECK(on_device.applied_steps() == on_cpu.applied_steps());
  }
}

TEST_CASE("A training step on CUDA does not wait for the device, and takes no memory after the third", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  for (const char* precision : {"fp32", "bf16", "fp16"}) {
    INFO(precision);
    PretrainConfig config = step_config(precision);
    config.model.attention_probs_dropout_prob = 0.1;
    TrainingStep step(config, device, nullptr);
    std::vector<PackedBatch> batches;
    for (int64_t i = 0; i < 6; ++i) batches.push_back(batch_of({33, 7, 64, 1}, 4 * i).to(device));
    for (size_t i = 0; i < 3; ++i) step.run({&batches[i], 1});
    const int64_t allocations = compat::device_allocations(device);
    {
      const compat::ForbidSynchronization forbid;
      for (size_t i = 3; i < 6; ++i) CHECK_NOTHROW(step.run({&batches[i], 1}));
    }
    CHECK(compat::device_allocations(device) == allocations);
    CHECK(std::isfinite(step.take_mean_loss().mlm));
  }
}

TEST_CASE("A run on CUDA that is stopped and resumed ends in the same bytes as one that is not", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  for (const char* precision : {"fp32", "bf16", "fp16-weights"}) {
    INFO(precision);
    const TemporaryDirectory directory;
    PretrainConfig whole = testing::tiny(directory, "whole"), stopped = testing::tiny(directory, "stopped");
    for (PretrainConfig* config : {&whole, &stopped}) {
      config->device = DeviceChoice::kCuda;
      config->precision = value_named<Precision>(precision).value();
    }
    REQUIRE(pretrain(whole, false) == kOk);
    for (const int64_t stop : {3, 8, 0}) {
      stopped.stop_at_step = stop;
      REQUIRE(pretrain(stopped, false) == kOk);
    }
    for (const char* file : {"/model.safetensors", "/optimizer.safetensors"}) {
      CHECK(read_file(checkpoint_directory(whole.run_directory, 12) + file) ==
            read_file(checkpoint_directory(stopped.run_directory, 12) + file));
    }
  }
}

}  // namespace
}  // namespace bert
