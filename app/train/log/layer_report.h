// The parameters of a run for reports: norms for layers.jsonl, and distributions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "app/report/sink.h"
#include "app/train/step/optimizer_step.h"

namespace bert {

/// The line of layers.jsonl of step `applied`: name, weight_norm, update_norm and trust_ratio of every parameter
/// (optim/parameter_norms.h), null where there is none. Every rank must call it; the ranks but 0 get null. Waits for
/// the device, and changes nothing.
nlohmann::ordered_json layers_line(const OptimizerStep& step, int64_t applied);

/// The distributions of all weights, and with `gradients` of the gradients of the last step without the loss scale.
/// With a sharded optimizer state only rank 0's own parameters have whole gradients there, and the others get none.
/// Copies one tensor at a time to the CPU, and changes nothing.
std::vector<TensorDistribution> distributions_of(const OptimizerStep& step, bool gradients);

}  // namespace bert
