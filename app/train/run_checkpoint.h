// What a run keeps in its checkpoints and takes from them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "app/checkpoint/state.h"
#include "app/config/pretrain_config.h"
#include "app/distributed/process_group.h"
#include "app/train/run_log.h"
#include "app/train/training_step.h"
#include "data/loader/dataloader.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

/// What a checkpoint is made of, and given back to.
struct RunParts {
  const PretrainConfig& config;
  const Tokenizer& tokenizer;
  const std::map<std::string, DataIdentity>& data;  // of the shards that are open
  const ProcessGroupPtr& group;
  TrainingStep& step;
  PretrainingDataLoader& loader;
  RunLog& log;
};

/// Sets the run to the newest valid checkpoint of its directory, else to the weights of config.initial_checkpoint; with
/// neither it stays as it is. Returns the checkpoint's step, -1 where the run begins. Every rank calls it; rank 0 alone
/// compares the checkpoint's bytes with their checksums. Throws ConfigError when the checkpoint's configuration or
/// examples differ where they must not, unless `allow_config_change`, or when its tensors do not fit; DataError,
/// InputMissing, IoError.
int64_t restore_run(const RunParts& run, bool allow_config_change);

/// Writes the checkpoint of step `applied`; returns when rank 0 has written it. Every rank calls it. Throws IoError,
/// PeerError when the ranks' weights differ.
void save_run(const RunParts& run, int64_t applied);

}  // namespace bert
