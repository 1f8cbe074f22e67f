// The options of the verbs that read the weights of a checkpoint.
#pragma once

#include <c10/core/ScalarType.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <system_error>

#include "app/checkpoint/checkpoint.h"
#include "app/inference/predictor.h"
#include "app/interop/formats.h"
#include "app/system/errors.h"

namespace bert {

/// Adds --raw-weights, which sets `weights` to kRaw.
inline void add_raw_weights(CLI::App& app, WeightsKind& weights) {
  app.add_flag_callback(
      "--raw-weights", [&weights] { weights = WeightsKind::kRaw; },
      "use the weights themselves; the default for a run with optimizer.ema_decay is their moving average, which the "
      "run evaluated");
}

/// Throws UsageError for --raw-weights of a model that is no run or checkpoint of this program.
inline void check_raw_weights(const std::string& checkpoint, WeightsKind weights) {
  if (weights == WeightsKind::kAveraged) return;
  std::error_code unseen;
  if (!std::filesystem::is_directory(checkpoint, unseen)) {
    throw UsageError("--raw-weights: " + checkpoint +
                     " is an export, which has one kind of weights; export it with --raw-weights");
  }
  if (foreign_format_of(checkpoint) != nullptr)
    throw UsageError("--raw-weights: " + checkpoint + " is a model of another program, which has one kind of weights");
}

/// Adds --trust, which sets `trust`.
inline void add_trust(CLI::App& app, bool& trust) {
  app.add_flag("--trust", trust,
               "also read a --checkpoint that is a pickle of PyTorch, a format that can hold code; none is executed");
}

/// The dtype of weights that --precision names: fp32, fp16 or bf16; that of int8, which only inference has, is fp32.
inline c10::ScalarType dtype_named(const std::string& precision) {
  return precision == "fp16" ? c10::kHalf : precision == "bf16" ? c10::kBFloat16 : c10::kFloat;
}

/// Adds --precision with `help`, which sets `dtype`.
inline void add_precision(CLI::App& app, c10::ScalarType& dtype, const std::string& help) {
  app.add_option_function<std::string>(
         "--precision", [&dtype](const std::string& name) { dtype = dtype_named(name); }, help)
      ->check(CLI::IsMember({"fp32", "fp16", "bf16"}))
      ->default_str("fp32");
}

/// Adds --precision of the verbs that answer, which sets `dtype` and `int8`.
inline void add_inference_precision(CLI::App& app, PredictorOptions& options) {
  const auto set = [&options](const std::string& name) {
    options.dtype = dtype_named(name);
    options.int8 = name == "int8";
  };
  app.add_option_function<std::string>(
         "--precision", set,
         "precision of the weights and of the computation; int8: the encoder's products are of bytes, on the CPU")
      ->check(CLI::IsMember({"fp32", "fp16", "bf16", "int8"}))
      ->default_str("fp32");
}

/// Throws UsageError for int8 on another device than the CPU.
inline void check_int8(const PredictorOptions& options) {
  if (options.int8 && !options.device.is_cpu()) throw UsageError("--precision int8 runs on the CPU; use --device cpu");
}

}  // namespace bert
