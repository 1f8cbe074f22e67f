// Times the operators of kernel_cases.h. Bytes and FLOPs are compared with a copy and a product of the same run, and
// the plain ATen expression is timed in turns with the operator.
#pragma once

#include <exception>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/bench/kernel_cases.h"

namespace bert {

struct KernelBenchmarkOptions {
  KernelShape shape;
  std::string filter;    // runs the cases whose names contain it; empty: all
  double seconds = 0.5;  // of timed rounds for each case, at least kMinRounds
  static constexpr int kMinRounds = 5, kMaxRounds = 100;
};

/// A row for every pass of every case: name, pass (forward, backward, update), ms_median, spread (90th to 10th
/// percentile, as a share of the median), bytes, gb_per_second, copy_fraction or flops, tflops, gemm_fraction,
/// aten_ms_median, ratio (> 1: faster than the ATen expression). A case that fails has one row, name and error, and the
/// others are timed all the same.
struct KernelTable {
  nlohmann::ordered_json rows;
  std::exception_ptr failure;  // of the first case that failed
};

/// `done` gets each row as soon as it is complete. A round runs both implementations and the copy or the product, so
/// that other load of the machine affects all of them. Throws UsageError if no name contains the filter.
KernelTable benchmark_kernels(const KernelBenchmarkOptions& options,
                              const std::function<void(const nlohmann::ordered_json&)>& done);

}  // namespace bert
