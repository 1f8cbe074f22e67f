// The operators beside the ATen expressions that they replace, forward and backward, on the CPU:
//   OMP_NUM_THREADS=2 build/tests/bert_bench --benchmark_repetitions=5 --benchmark_report_aggregates_only
// Names are operator/implementation/dtype/T; the ratio of two medians of one run is what counts. `copy` is the fraction
// of a memory copy's bandwidth, measured in the same run, that the unavoidable bytes reach; `gflops` stands where
// arithmetic decides.
#include "tests/bench.h"

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "cuda_ext/ops.h"

namespace bert {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Op = std::function<Tensor(const Tensors&)>;

constexpr int64_t kHidden = 768, kHeads = 12, kIntermediate = 3072, kLength = 128, kVocabulary = 30522;
constexpr double kDrop = 0.1;

struct Case {
  std::string name;
  Op bert, aten;
  std::function<Tensors(int64_t tokens)> inputs;  // fp32; activations are converted to the dtype
  double passes = 0.0;                            // of a [T, columns] tensor through memory
  int64_t columns = 0;
  double flops_per_token = 0.0;
};

void run(benchmark::State& state, const Case& test, const Op& op, at::ScalarType type, int64_t tokens) {
  Tensors inputs = test.inputs(tokens), leaves;
  for (Tensor& input : inputs) {
    if (!input.is_floating_point()) continue;
    input = input.to(type).detach().requires_grad_(true);
    leaves.push_back(input);
  }
  const Tensor upstream = at::randn_like(op(inputs));
  for (auto _ : state) {
    const Tensor y = op(inputs);
    benchmark::DoNotOptimize(torch::autograd::grad({y}, leaves, {upstream}));
  }
  const auto rounds = static_cast<double>(state.iterations()) * static_cast<double>(tokens);
  if (test.columns > 0) {
    const double bytes = test.passes * static_cast<double>(test.columns) * static_cast<double>(c10::elementSize(type));
    state.counters["copy"] = benchmark::Counter(rounds * bytes / copy_bandwidth(), benchmark::Counter::kIsRate);
  }
  if (test.flops_per_token > 0.0) {
    state.counters["gflops"] = benchmark::Counter(rounds * test.flops_per_token * 1e-9, benchmark::Counter::kIsRate);
  }
}

Tensor ids(int64_t high, int64_t count) { return at::randint(high, {count}, at::kLong); }
Tensor sequence_ends(int64_t tokens) { return at::arange(0, tokens + 1, kLength, at::kInt); }
ops::Dropout drop(int64_t tokens, double p = kDrop) {
  return {.p = p, .seed = 1, .site = 16, .keys = at::arange(tokens, at::kLong)};
}

std::vector<Case> cases() {
  const auto vector = [](int64_t size) { return at::randn({size}); };
  std::vector<Case> list;
  list.push_back({.name = "bias_gelu",
                  .bert = [](const Tensors& in) { return ops::bias_gelu(in[0], in[1], ops::Gelu::kTanh); },
                  .aten = [](const Tensors& in) { return at::gelu(in[0] + in[1], "tanh"); },
                  .inputs =
                      [=](int64_t t) {
                        return Tensors{at::randn({t, kIntermediate}), vector(kIntermediate)};
                      },
                  .passes = 5,  // x, y; dy, x, dx
                  .columns = kIntermediate});
  list.push_back({.name = "layer_norm",
                  .bert = [](const Tensors& in) { return ops::layer_norm(in[0], in[1], in[2], 1e-12); },
                  .aten = [](const Tensors& in) { return at::layer_norm(in[0], {kHidden}, in[1], in[2], 1e-12); },
                  .inputs =
                      [=](int64_t t) {
                        return Tensors{at::randn({t, kHidden}), vector(kHidden), vector(kHidden)};
                      },
                  .passes = 5,
                  .columns = kHidden});
  list.push_back({.name = "bias_dropout_residual_layer_norm",
                  .bert =
                      [](const Tensors& in) {
                        return ops::bias_dropout_residual_layer_norm(in[0], in[1], in[2], in[3], in[4], 1e-12,
                                                                     drop(in[0].size(0)));
                      },
                  .aten =
                      [](const Tensors& in) {
                        return at::layer_norm(at::dropout(in[0] + in[1], kDrop, true) + in[2], {kHidden}, in[3], in[4],
                                              1e-12);
                      },
                  .inputs =
                      [=](int64_t t) {
                        return Tensors{at::randn({t, kHidden}), vector(kHidden), at::randn({t, kHidden}),
                                       vector(kHidden), vector(kHidden)};
                      },
                  .passes = 8,  // x, residual, y; dy, x, residual, dx, dresidual
                  .columns = kHidden});
  list.push_back({.name = "embedding_layer_norm_dropout",
                  .bert =
                      [](const Tensors& in) {
                        return ops::embedding_layer_norm_dropout(in[0], in[1], in[2], {in[3], in[4], in[5]}, in[6],
                                                                 in[7], 1e-12, drop(in[0].size(0)));
                      },
                  .aten =
                      [](const Tensors& in) {
                        const Tensor sum =
                            at::embedding(in[3], in[0]) + at::embedding(in[4], in[1]) + at::embedding(in[5], in[2]);
                        return at::dropout(at::layer_norm(sum, {kHidden}, in[6], in[7], 1e-12), kDrop, true);
                      },
                  .inputs =
                      [=](int64_t t) {
                        return Tensors{ids(kVocabulary, t),
                                       at::arange(t, at::kLong).remainder(kLength),
                                       ids(2, t),
                                       at::randn({kVocabulary, kHidden}),
                                       at::randn({kLength, kHidden}),
                                       at::randn({2, kHidden}),
                                       vector(kHidden),
                                       vector(kHidden)};
                      },
                  .passes = 5,
                  .columns = kHidden});
  for (const double p : {0.0, kDrop}) {
    list.push_back(
        {.name = p > 0.0 ? "attention_dropout" : "attention",
         .bert =
             [p](const Tensors& in) {
               return ops::attention(in[0], sequence_ends(in[0].size(0)), kLength, kHeads, drop(in[0].size(0), p));
             },
         .aten =
             [p](const Tensors& in) {
               const Tensor heads = in[0].view({-1, kLength, 3, kHeads, kHidden / kHeads}).permute({2, 0, 3, 1, 4});
               const Tensor out = at::scaled_dot_product_attention(heads[0], heads[1], heads[2], std::nullopt, p);
               return out.transpose(1, 2).reshape({-1, kHidden});
             },
         .inputs =
             [](int64_t t) {
               return Tensors{at::randn({t, 3 * kHidden})};
             },
         .flops_per_token = 14.0 * kLength * kHidden});  // two products forward, five backward
  }
  for (const double p : {0.0, kDrop}) {
    list.push_back({.name = p > 0.0 ? "masked_softmax_dropout" : "masked_softmax",
                    .bert =
                        [p](const Tensors& in) {
                          const int64_t tokens = in[0].size(0) * kLength;
                          return ops::masked_softmax_dropout(in[0], sequence_ends(tokens), 0.125, drop(tokens, p));
                        },
                    .aten =
                        [p](const Tensors& in) {
                          const Tensor scores = in[0] * 0.125 + in[1].to(in[0].scalar_type());
                          return at::dropout(at::softmax(scores, 3), p, p > 0.0);
                        },
                    .inputs =
                        [](int64_t t) {
                          return Tensors{at::randn({t / kLength, kHeads, kLength, kLength}),
                                         at::zeros({t / kLength, 1, 1, kLength}, at::kLong)};
                        },
                    .passes = 5,  // scores, y; dy, scores, dscores
                    .columns = kHeads * kLength});
  }
  list.push_back(
      {.name = "linear",
       .bert = [](const Tensors& in) { return ops::linear(in[0], in[1], in[2]); },
       .aten = [](const Tensors& in) { return at::linear(in[0], in[1], in[2]); },
       .inputs =
           [=](int64_t t) {
             return Tensors{at::randn({t, kHidden}), at::randn({kIntermediate, kHidden}), vector(kIntermediate)};
           },
       .flops_per_token = 6.0 * kHidden * kIntermediate});
  list.push_back(
      {.name = "cross_entropy",
       .bert = [](const Tensors& in) { return ops::cross_entropy(in[0] * 1, in[1], kVocabulary); },
       .aten = [](const Tensors& in) { return at::cross_entropy_loss((in[0] * 1).to(at::kFloat), in[1]); },
       .inputs =
           [](int64_t t) {
             return Tensors{at::randn({t / 6, kVocabulary}), ids(kVocabulary, t / 6)};
           },
       .passes = 6.0 / 6.0,  // of [T / 6, V]: the product with 1 that makes logits (4), then one read and one write
       .columns = kVocabulary});
  list.push_back({.name = "dropout",
                  .bert = [](const Tensors& in) { return ops::dropout(in[0], drop(in[0].size(0))); },
                  .aten = [](const Tensors& in) { return at::dropout(in[0], kDrop, true); },
                  .inputs =
                      [](int64_t t) {
                        return Tensors{at::randn({t, kHidden})};
                      },
                  .passes = 4,
                  .columns = kHidden});
  return list;
}

}  // namespace

double copy_bandwidth() {
  static const double bandwidth = [] {
    const Tensor from = at::ones({64 << 20}), to = at::empty_like(from);
    double best = 0.0;
    for (int i = 0; i < 5; ++i) {
      const auto start = std::chrono::steady_clock::now();
      to.copy_(from);
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      best = std::max(best, 2.0 * static_cast<double>(from.nbytes()) / elapsed.count());
    }
    return best;
  }();
  return bandwidth;
}

}  // namespace bert

int main(int argc, char** argv) {
  using namespace bert;
  for (const Case& test : cases()) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      for (const int64_t tokens : {128, 4096}) {
        for (const bool ours : {true, false}) {
          const std::string name =
              test.name + (ours ? "/bert/" : "/aten/") + c10::toString(type) + "/" + std::to_string(tokens);
          benchmark::RegisterBenchmark(
              name.c_str(),
              [=](benchmark::State& state) { run(state, test, ours ? test.bert : test.aten, type, tokens); })
              ->Unit(benchmark::kMillisecond)
              ->UseRealTime();
        }
      }
    }
  }
  register_optimizer_benchmarks();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return EXIT_FAILURE;
  benchmark::RunSpecifiedBenchmarks();
  return EXIT_SUCCESS;
}
