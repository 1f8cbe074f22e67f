// The operators and the ATen expressions that they replace, forward and backward, on the CPU, under google-benchmark:
//   OMP_NUM_THREADS=2 build/tests/bert_bench --benchmark_repetitions=5 --benchmark_report_aggregates_only
// The cases are those of `bert benchmark kernels`. Names are operator/implementation/dtype/T. Compare the ratio of two
// medians of one run. `copy` is the fraction of a copy's bytes per second, `gemm` that of a product's FLOP/s, both
// measured in the same run.
#include "tests/bench/bench.h"

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>

#include "app/benchmark/kernel_cases.h"

namespace {

/// The shortest of five calls, in seconds.
template <class Body>
double best_seconds(const Body& body) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    body();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

/// FLOP/s of a product of square matrices of the dtype, measured once.
double gemm_rate(at::ScalarType type) {
  static std::map<at::ScalarType, double> rates;
  const auto [rate, fresh] = rates.try_emplace(type);
  if (fresh) {
    constexpr int64_t kSize = 2048;
    const at::Tensor a = at::randn({kSize, kSize}).to(type), b = at::randn({kSize, kSize}).to(type);
    rate->second = 2.0 * std::pow(kSize, 3) / best_seconds([&] { at::mm(a, b); });
  }
  return rate->second;
}

void run(benchmark::State& state, const bert::KernelCase& test, const bert::KernelCase::Op& op, at::ScalarType type) {
  bert::KernelRun contestant(test, op, test.inputs());
  const bert::KernelCost backward = test.backward.value_or(bert::KernelCost{});
  const bert::KernelCost cost{.bytes = test.forward.bytes + backward.bytes,
                              .flops = test.forward.flops + backward.flops};
  for (auto _ : state) {
    state.PauseTiming();
    contestant.prepare();
    state.ResumeTiming();
    contestant.forward();
    if (contestant.has_backward()) contestant.backward();
  }
  const auto rate = [&](double amount) {
    return benchmark::Counter(amount * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  };
  if (cost.bytes > 0.0) {
    state.counters["bytes"] = rate(cost.bytes);
    state.counters["copy"] = rate(cost.bytes / bert::copy_bandwidth());
  }
  if (cost.flops > 0.0) {
    state.counters["flop"] = rate(cost.flops);
    state.counters["gemm"] = rate(cost.flops / gemm_rate(type));
  }
}

}  // namespace

double bert::copy_bandwidth() {
  static const double bandwidth = [] {
    const at::Tensor from = at::ones({64 << 20}), to = at::empty_like(from);
    return 2.0 * static_cast<double>(from.nbytes()) / best_seconds([&] { to.copy_(from); });
  }();
  return bandwidth;
}

int main(int argc, char** argv) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t tokens : {128, 4096}) {
      const bert::KernelShape shape{.tokens = tokens, .dtype = type};
      for (const bert::KernelCase& test : bert::kernel_cases(shape)) {
        if (!test.backward) continue;  // optim_bench.cc times the optimizers, on a whole model
        for (const bool ours : {true, false}) {
          const std::string name =
              test.name + (ours ? "/bert/" : "/aten/") + c10::toString(type) + "/" + std::to_string(tokens);
          benchmark::RegisterBenchmark(
              name.c_str(), [=](benchmark::State& state) { run(state, test, ours ? test.bert : test.aten, type); })
              ->Unit(benchmark::kMillisecond)
              ->UseRealTime();
        }
      }
    }
  }
  bert::register_optimizer_benchmarks();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return EXIT_FAILURE;
  benchmark::RunSpecifiedBenchmarks();
  return EXIT_SUCCESS;
}
