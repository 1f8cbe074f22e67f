// What a run reads beside its configuration: the vocabulary and the shards, each checked against the other and against
// the configuration before the first step.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "app/checkpoint/state.h"
#include "app/config/pretrain_config.h"
#include "data/formats/shard.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

/// The tokenizer of data.vocab_file. Throws ConfigError when it has more tokens than the model, InputMissing with the
/// key, IoError, DataError.
std::unique_ptr<Tokenizer> load_tokenizer(const PretrainConfig& config);

/// The shards of data.<key>, "train" or "validation". Throws ConfigError when they were made with another vocabulary or
/// other tokenizer settings than the configuration's, or are too long for the model; InputMissing with the key,
/// IoError, DataError.
std::shared_ptr<const PretrainingShards> open_shards(const PretrainConfig& config, const std::string& key,
                                                     const Tokenizer& tokenizer);

/// What a checkpoint keeps of shards, from their headers.
DataIdentity identity_of(const PretrainingShards& shards);

/// A line for each key whose examples are others than before; keys that one side lacks are left out.
std::vector<std::string> compare_data(const std::map<std::string, DataIdentity>& before,
                                      const std::map<std::string, DataIdentity>& now);

}  // namespace bert
