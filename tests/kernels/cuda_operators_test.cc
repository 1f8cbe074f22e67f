// The operators of cuda_ext/cuda/ on the CPU: their host functions with tensors of the CPU, their kernels in the
// emulator, each compared with the operator for the CPU.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "tests/support/emulated_device.h"
#include "tests/support/ops_testing.h"

namespace bert {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using torch::jit::Stack;

Stack joined(std::initializer_list<Stack> parts) {
  Stack result;
  for (const Stack& part : parts) result.insert(result.end(), part.begin(), part.end());
  return result;
}

/// Calls the kernel that is registered for the device.
Stack call(c10::DispatchKey device, const std::string& name, Stack arguments) {
  c10::Dispatcher::singleton()
      .findSchemaOrThrow(("bert::" + name).c_str(), "")
      .redispatchBoxed(c10::DispatchKeySet(device), &arguments);
  return arguments;
}

/// A chain of operators: runs them on the device, and returns the results.
using Chain = std::function<std::vector<Stack>(c10::DispatchKey device)>;

struct Sizes {
  int64_t tokens, hidden;
};

struct Types {
  at::ScalarType activations, parameters;
};

/// Sums over rows, and results with a factor 1 / std, have larger rounding errors.
constexpr double kScale = 16.0;

/// The results of the host function equal those of the CPU, and every kernel ran on the current stream of a guarded
/// device.
void check_chain(const std::string& name, const Chain& chain, bool kernels, double scale = kScale) {
  CAPTURE(name);
  const std::vector<Stack> want = chain(c10::DispatchKey::CPU);
  std::vector<Stack> got;
  check_launches(kernels, [&] { got = chain(c10::DispatchKey::CUDA); });
  REQUIRE(got.size() == want.size());
  for (size_t step = 0; step < got.size(); ++step) {
    REQUIRE(got[step].size() == want[step].size());
    for (size_t i = 0; i < got[step].size(); ++i) {
      CAPTURE(step, i);
      const Tensor g = got[step][i].toTensor(), w = want[step][i].toTensor();
      CHECK(g.scalar_type() == w.scalar_type());
      if (g.scalar_type() == at::kByte) continue;  // kept bits: the CPU stores them, CUDA draws them again
      const double size =
          w.numel() > 0 ? std::max(1.0, w.to(at::kDouble).abs().nan_to_num(0.0).max().item<double>()) : 1.0;
      CHECK(mismatch(g, w, scale * size) == "");
    }
  }
}

void check_operators(const Sizes& sizes, const Types& types, double p) {
  const auto [tokens, hidden] = sizes;
  CAPTURE(tokens, hidden, types.activations, types.parameters, p);
  const EmulatedDevice emulated;
  const auto activations = [&](at::IntArrayRef shape, uint64_t seed) {
    return randn(shape, seed).to(types.activations);
  };
  const auto parameters = [&](uint64_t seed) { return randn({sizes.hidden}, seed).to(types.parameters); };
  const Tensor x = activations({tokens, hidden}, 1), residual = activations({tokens, hidden}, 2),
               grad = activations({tokens, hidden}, 3), bias = parameters(4), gamma = parameters(5) + 1.0,
               beta = parameters(6), keys = keys_of(tokens);
  const Stack drop = {p, int64_t{-7}, int64_t{1040}, keys};
  constexpr double kEps = 0.1;
  const bool kernels = types.activations != at::kDouble && tokens > 0;

  for (const bool tanh : {true, false}) {  // the two differ by at most 5e-4
    check_chain(
        "bias_gelu",
        [&](auto device) -> std::vector<Stack> {
          return {call(device, "bias_gelu", {x, bias, tanh}),
                  call(device, "bias_gelu_backward", {grad, x, bias, tanh})};
        },
        kernels, 1.0);
  }
  check_chain(
      "layer_norm",
      [&](auto device) -> std::vector<Stack> {
        const Stack y = call(device, "layer_norm", {x, gamma, beta, kEps});
        return {y, call(device, "layer_norm_backward", {grad, x, y[1], y[2], gamma})};
      },
      kernels);
  check_chain(
      "bias_dropout_residual_layer_norm",
      [&](auto device) -> std::vector<Stack> {
        const Stack y =
            call(device, "bias_dropout_residual_layer_norm", joined({{x, bias, residual, gamma, beta, kEps}, drop}));
        return {y, call(device, "bias_dropout_residual_layer_norm_backward",
                        joined({{grad, x, bias, residual, y[1], y[2], gamma}, drop, {y[3]}}))};
      },
      kernels);
  for (const int64_t type_rows : {2, 5}) {  // with and without gradients of types in the fused kernel
    const Tensor word = activations({11, hidden}, 7), position = activations({9, hidden}, 8),
                 type = activations({type_rows, hidden}, 9);
    const Stack tables = {
        integers(11, tokens, 1), integers(9, tokens, 2), integers(type_rows, tokens, 3), word, position, type};
    check_chain(
        "embedding_layer_norm_dropout",
        [&](auto device) -> std::vector<Stack> {
          const Stack y = call(device, "embedding_layer_norm_dropout", joined({tables, {gamma, beta, kEps}, drop}));
          return {y, call(device, "embedding_layer_norm_dropout_backward",
                          joined({{grad}, tables, {y[1], y[2], gamma}, drop, {y[3]}}))};
        },
        kernels);
  }
  check_chain(
      "dropout",
      [&](auto device) -> std::vector<Stack> {
        const Stack y = call(device, "dropout", joined({{x}, drop}));
        return {y, call(device, "dropout_backward", joined({{grad}, drop, {y[1]}}))};
      },
      kernels&& p > 0.0);
  check_chain(
      "dropout_mask",
      [&](auto device) -> std::vector<Stack> {
        return {call(device, "dropout_mask", {keys, int64_t{-7}, int64_t{1040}, hidden, p})};
      },
      tokens > 0);
  // Where there are two columns or more, the last is padding.
  const int64_t classes = std::max<int64_t>(1, hidden - 1);
  const Tensor labels = integers(classes, tokens, 4);
  check_chain(
      "cross_entropy",
      [&](auto device) -> std::vector<Stack> {
        const Stack loss = call(device, "cross_entropy", {x, labels, classes});
        const Tensor upstream = at::full_like(loss[0].toTensor(), 0.7);
        return {loss, call(device, "cross_entropy_backward_", {x.clone(), upstream, labels, loss[1], classes})};
      },
      types.activations != at::kDouble);
  const Tensor scores = activations({2, 3, tokens, tokens}, 10), grad_scores = activations({2, 3, tokens, tokens}, 11),
               ends = at::tensor({int64_t{0}, tokens, tokens + (tokens + 1) / 2}, at::kInt),
               all_keys = keys_of(tokens + (tokens + 1) / 2);
  const Stack drop_scores = {p, int64_t{-7}, int64_t{1040}, all_keys};
  check_chain(
      "masked_softmax_dropout",
      [&](auto device) -> std::vector<Stack> {
        const Stack y = call(device, "masked_softmax_dropout", joined({{scores, ends, 0.3}, drop_scores}));
        return {y, call(device, "masked_softmax_dropout_backward",
                        joined({{grad_scores, scores, y[1], ends, 0.3}, drop_scores}))};
      },
      kernels);
}

TEST_CASE("The host functions of CUDA's operators equal the CPU's operators", "[unit][cuda_emulator]") {
  const std::vector<Types> all_types = {{at::kFloat, at::kFloat},    {at::kHalf, at::kHalf},
                                        {at::kHalf, at::kFloat},     {at::kBFloat16, at::kBFloat16},
                                        {at::kBFloat16, at::kFloat}, {at::kDouble, at::kDouble}};
  for (const Types& types : all_types) {
    for (const Sizes& sizes : std::vector<Sizes>{{5, 24}, {7, 33}, {3, 768}, {1, 2}}) {
      for (const double p : {0.0, 0.25}) check_operators(sizes, types, p);
    }
  }
}

}  // namespace
}  // namespace bert
