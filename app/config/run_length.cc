#include "app/config/run_length.h"

#include <vector>

namespace bert {

std::vector<BatchGrowth> batch_growth_of(const RunConfig& config, double tokens) {
  std::vector<BatchGrowth> growth;
  for (const BatchSizeConfig& next : config.batch_size_schedule) {
    growth.push_back({.after_steps = next.after_steps,
                      .after_sequences = static_cast<double>(next.after_tokens) / tokens,
                      .size = next.global_batch_size});
  }
  return growth;
}

BatchSizes batch_sizes_of(const RunConfig& config, double tokens) {
  return {config.global_batch_size, batch_growth_of(config, tokens)};
}

int64_t planned_steps(const PretrainConfig& config, double tokens, int64_t examples) {
  const BatchSizes sizes = batch_sizes_of(config, tokens);
  int64_t steps = config.max_steps;
  if (config.max_tokens > 0) steps = sizes.steps_of(static_cast<double>(config.max_tokens) / tokens, steps);
  if (config.num_train_epochs > 0 && examples > 0)
    steps = sizes.steps_of(config.num_train_epochs * static_cast<double>(examples), steps);
  return steps;
}

}  // namespace bert
