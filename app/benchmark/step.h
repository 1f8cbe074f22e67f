// Times training steps on random batches.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "app/config/pretrain_config.h"

namespace bert {

struct StepBenchmarkOptions {
  PretrainConfig config;         // model, optimizer, precision and device
  std::vector<int64_t> lengths;  // of the sequences, in turn
  int64_t batch = 8, steps = 10, warmup = 3;
  bool breakdown = false;
  double product_flops = 0;  // measure_gemm() in the precision of the steps, where it is known; 0: it is measured
};

/// sequences_per_second, tokens_per_second, tflops, mfu (of a square product measured in the same run), ms_median and
/// other percentiles of a step; limits (gemm_tflops, copy_gb_per_second), memory (planned_bytes of plan_memory(),
/// peak_bytes of the GPU's tensors or of this process on the CPU) and benchmark_products(). With `breakdown` as many
/// steps again are profiled after those that are timed, and the result has their breakdown()
/// (app/profile/step_profile.h).
nlohmann::ordered_json benchmark_step(const StepBenchmarkOptions& options);

}  // namespace bert
