// Times the encoder and pooler on random texts: what a program that asks for answers waits for.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/bert.h"

namespace bert {

struct InferenceBenchmarkOptions {
  BertModel model = nullptr;  // fp32, on the CPU; its products are prepared, and it is released
  c10::Device device = c10::kCPU;
  std::string precision = "fp32";                       // one of kInferencePrecisions
  std::vector<int64_t> batches = {8};                   // texts that are computed together
  std::vector<std::vector<int64_t>> lengths = {{128}};  // of the texts of a case, in turn
  int64_t steps = 10, warmup = 3;                       // batches of a case
};

inline constexpr std::array<const char*, 5> kInferencePrecisions = {"fp32", "tf32", "bf16", "fp16", "int8"};

/// One row for each element of `lengths` and `batches`: batch, length (if all texts of the case have one),
/// sequences_per_second, tokens_per_second, tflops, ms_average, ms_median, ms_p90, ms_p95, ms_p99, ms_p100; and mfu (of a
/// square product of the precision measured in the same run) except for int8. `done` gets each row when it is measured.
/// Texts are packed without padding. The warm-up has the lengths of the first timed batches.
nlohmann::ordered_json benchmark_inference(InferenceBenchmarkOptions options,
                                           const std::function<void(const nlohmann::ordered_json& row)>& done);

}  // namespace bert
