// The same training run in several precisions, to compare their losses.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "app/config/pretrain_config.h"

namespace bert {

struct PrecisionCurve {
  std::string precision;
  std::vector<double> loss;  // of every step's batch, before the step
  int64_t skipped = 0;       // steps whose gradients overflowed
};

/// Mean loss of the last tenth of the steps, at least one.
[[nodiscard]] double final_loss(const PrecisionCurve& curve);

/// Trains `config` from the start for `steps` steps in each precision, on the same batches in the same order, without
/// checkpoints. max_steps is `steps`. `progress` is called after every step. Throws as pretrain() does.
[[nodiscard]] std::vector<PrecisionCurve> train_in_precisions(
    PretrainConfig config, const std::vector<std::string>& precisions, int64_t steps,
    const std::function<void(const PrecisionCurve& curve)>& progress);

/// "step,fp32,bf16,...": a line per step, losses to six digits after the point.
[[nodiscard]] std::string curves_to_csv(const std::vector<PrecisionCurve>& curves);
/// Reads the text of curves_to_csv(), which lacks the skipped steps. Throws DataError.
[[nodiscard]] std::vector<PrecisionCurve> curves_from_csv(const std::string& text, const std::string& name);

/// The curves as SVG, each point the mean of the last 20 steps. The labels show the final losses and their distance
/// from that of the first curve.
[[nodiscard]] std::string curves_to_svg(const std::vector<PrecisionCurve>& curves);

}  // namespace bert
