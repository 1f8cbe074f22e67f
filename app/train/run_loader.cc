#include "app/train/run_loader.h"

#include <fmt/format.h>

#include <cstdint>
#include <memory>

#include "app/config/run_length.h"
#include "app/system/errors.h"
#include "app/train/run_inputs.h"

namespace bert {

std::optional<DynamicMasking> dynamic_masking(const PretrainConfig& config, const Tokenizer* tokenizer) {
  if (config.data.masking != Masking::kDynamic) return std::nullopt;
  DynamicMasking masking{.vocabulary = std::make_shared<const MaskingVocabulary>(*tokenizer),
                         .config = config.data.masks};
  if (masking.config.max_predictions_per_seq == 0) masking.config.max_predictions_per_seq = INT64_MAX;
  return masking;
}

DataLoaderConfig loader_config(const PretrainConfig& config, const PretrainingShards& train,
                               const Tokenizer* tokenizer) {
  DataLoaderConfig loader;
  loader.micro_batch_size = config.micro_batch_size;
  loader.micro_batch_tokens = config.micro_batch_tokens;
  loader.length_bin_size = config.data.length_bin_size;
  loader.global_batch_size = config.global_batch_size;
  loader.seed = static_cast<uint64_t>(config.seed);
  loader.sources = training_sources(config, train);
  loader.batch_growth = batch_growth_of(config, mean_length(loader.sources, train));
  loader.masking = dynamic_masking(config, tokenizer);
  loader.replace_damaged_rows = config.data.corrupted_rows == CorruptedRows::kSkip;
  if (config.micro_batch_tokens > 0 && packed_micro_batches(loader, train) == 0) {
    throw ConfigError(fmt::format(
        "micro_batch_tokens {}: a step of {} sequences (global_batch_size) does not fill half of it; expected "
        "fewer tokens, or more sequences",
        config.micro_batch_tokens, config.global_batch_size));
  }
  return loader;
}

PretrainConfig with_length(PretrainConfig config, const PretrainingShards& train, const RunNote& note) {
  if (config.max_tokens == 0 && config.num_train_epochs == 0) return config;
  const double tokens = mean_length(training_sources(config, train), train);
  const int64_t steps = planned_steps(config, tokens, train.size());
  const double sequences = batch_sizes_of(config, tokens).sequences(steps);
  note(fmt::format("max_steps {}: {:.0f} tokens, {:.3g} epochs{}", steps, sequences * tokens,
                   sequences / static_cast<double>(train.size()),
                   steps == config.max_steps ? ", as max_steps ends the run first, or with the others" : ""));
  if (config.from_step >= steps) {
    throw ConfigError(
        fmt::format("from_step: want less than {}, the steps of max_tokens or num_train_epochs, got {}; both count the "
                    "steps before the branch, too",
                    steps, config.from_step));
  }
  config.max_steps = steps;
  return config;
}

}  // namespace bert
