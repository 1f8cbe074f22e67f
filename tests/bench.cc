// The operators beside the ATen expressions that they replace, forward and backward, on the CPU, under
// google-benchmark:
//   OMP_NUM_THREADS=2 build/tests/bert_bench --benchmark_repetitions=5 --benchmark_report_aggregates_only
// The cases are those of `bert benchmark kernels`, which measures a copy and a product beside them. Names are
// operator/implementation/dtype/T; the ratio of two medians of one run is what counts.
#include "tests/bench.h"

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>

#include "app/kernel_cases.h"

namespace {

void run(benchmark::State& state, const bert::KernelCase& test, const bert::KernelCase::Op& op) {
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
  if (cost.bytes > 0.0) state.counters["bytes"] = rate(cost.bytes);
  if (cost.flops > 0.0) state.counters["flop"] = rate(cost.flops);
}

}  // namespace

double bert::copy_bandwidth() {
  static const double bandwidth = [] {
    const at::Tensor from = at::ones({64 << 20}), to = at::empty_like(from);
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

int main(int argc, char** argv) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t tokens : {128, 4096}) {
      const bert::KernelShape shape{.tokens = tokens, .dtype = type};
      for (const bert::KernelCase& test : bert::kernel_cases(shape)) {
        if (!test.backward) continue;  // the optimizer's: optim_bench.cc, on a whole model
        for (const bool ours : {true, false}) {
          const std::string name =
              test.name + (ours ? "/bert/" : "/aten/") + c10::toString(type) + "/" + std::to_string(tokens);
          benchmark::RegisterBenchmark(name.c_str(),
                                       [=](benchmark::State& state) { run(state, test, ours ? test.bert : test.aten); })
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
