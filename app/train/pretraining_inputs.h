// The inputs of a run of pre-training: its resolved configuration, its tokenizer and its shards.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "app/checkpoint/state.h"
#include "app/config/pretrain_config.h"
#include "app/train/run_place.h"
#include "data/formats/shard.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

/// The same on all ranks.
struct PretrainingInputs {
  PretrainConfig config;           // resolved: numbers as micro_batch_size and max_steps, a name as objective
  std::vector<std::string> notes;  // sentences that rank 0 has printed, for the log
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const PretrainingShards> train, validation;  // validation: nullptr if the run does not evaluate
  std::map<std::string, DataIdentity> data;                    // of `train` and `validation`
};

/// Reads what `config` names and resolves what it leaves open. Every rank must call it. Throws ConfigError if the ranks
/// differ in their configuration or data, PeerError, DataError, InputMissing, IoError.
PretrainingInputs read_pretraining_inputs(const PretrainConfig& config, const RunPlace& place);

}  // namespace bert
