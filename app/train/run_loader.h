// The settings of a run's loader.
#pragma once

#include <optional>

#include "app/config/pretrain_config.h"
#include "app/train/run_inputs.h"
#include "data/formats/shard.h"
#include "data/loader/dataloader.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

/// The masks that a run draws; empty with data.masking static, which needs no tokenizer.
std::optional<DynamicMasking> dynamic_masking(const PretrainConfig& config, const Tokenizer* tokenizer);

/// The settings of the loader of one process, which reads `train`, the shards that open_shards() has opened. Throws
/// ConfigError if the steps of packed micro-batches are too small for one.
DataLoaderConfig loader_config(const PretrainConfig& config, const PretrainingShards& train,
                               const Tokenizer* tokenizer);

/// `config`, which trains on `train`, with planned_steps() as its max_steps. `note` gets the number with its reason.
PretrainConfig with_length(PretrainConfig config, const PretrainingShards& train, const RunNote& note);

}  // namespace bert
