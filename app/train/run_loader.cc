#include "app/train/run_loader.h"

#include <fmt/format.h>

#include <cstdint>
#include <memory>

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

}  // namespace bert
