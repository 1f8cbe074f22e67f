// The option --raw-weights of the verbs that read the weights of a checkpoint.
#pragma once

#include <CLI/CLI.hpp>

#include "app/checkpoint/checkpoint.h"

namespace bert {

/// Adds --raw-weights, which sets `weights` to kRaw.
inline void add_raw_weights(CLI::App& app, WeightsKind& weights) {
  app.add_flag_callback(
      "--raw-weights", [&weights] { weights = WeightsKind::kRaw; },
      "use the weights themselves; the default for a run with optimizer.ema_decay is their moving average, which the "
      "run evaluated");
}

}  // namespace bert
