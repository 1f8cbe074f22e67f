// The length of a pre-training run, and the sizes of its steps.
#pragma once

#include <cstdint>
#include <vector>

#include "app/config/pretrain_config.h"
#include "data/batch_sizes.h"

namespace bert {

/// config.batch_size_schedule of a run whose sequences have `tokens` tokens in the mean.
std::vector<BatchGrowth> batch_growth_of(const RunConfig& config, double tokens);
/// The sizes of its steps.
BatchSizes batch_sizes_of(const RunConfig& config, double tokens);

/// The least of max_steps, the steps of max_tokens and those of num_train_epochs of `examples` examples; 0: their number
/// is not known.
int64_t planned_steps(const PretrainConfig& config, double tokens, int64_t examples);

}  // namespace bert
