// The micro_batch_size of a run whose configuration says "auto".
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "app/config/pretrain_config.h"
#include "app/plan/memory.h"
#include "app/train/run_inputs.h"
#include "app/train/run_place.h"
#include "data/formats/shard.h"

namespace bert {

/// Gives the micro_batch_size of a configuration in JSON. Throws ConfigError.
using MicroBatchOf = std::function<int64_t(const std::string& json, const std::string& name)>;

/// The micro_batch_size of a run: that of `config`, unless it is "auto". Then the largest_micro_batch() whose plan fills
/// at most plannable_bytes() of the free memory, the smallest over all ranks; a run that goes on keeps the size of its
/// config.json, which `earlier` reads, if that fits too, so that resumption stays exact. `parameters` are the sizes of
/// the model's, `longest` is the largest sequence. Every rank must call it and gets the same size. `note` gets the size
/// with its reason, and a warning if the size changes the result by more than rounding. Throws ConfigError if not even
/// one sequence fits; PeerError.
int64_t choose_micro_batch(const RunConfig& config, const std::vector<int64_t>& parameters, const SequenceSize& longest,
                           const RunPlace& place, const MicroBatchOf& earlier, const RunNote& note);

/// `config`, which trains on `train`, with choose_micro_batch() as its micro_batch_size.
PretrainConfig with_micro_batch(PretrainConfig config, const PretrainingShards& train, const RunPlace& place,
                                const RunNote& note);

}  // namespace bert
