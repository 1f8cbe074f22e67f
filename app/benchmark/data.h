// Times the loader of pre-training batches alone.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>

#include "data/formats/shard.h"
#include "data/loader/dataloader.h"

namespace bert {

struct DataBenchmarkOptions {
  DataLoaderConfig loader;
  int64_t steps = 1000, warmup = 10;
  static constexpr double kDemand = 1'000'000;  // tokens a second: BERT-base at length 128 on an H100
};

/// Takes steps of `warmup` batches at least, then of `steps` batches at full speed: sequences_per_second,
/// tokens_per_second, the same for a second of processor time in any thread (tokens_per_second_per_core),
/// megabytes_per_second (of the examples as stored in the shards), fill (tokens as a share of those that the
/// micro-batches could have held), masked_share, ms_median and other percentiles of a batch, as the mean over its step.
/// Then takes steps at the speed of kDemand, as a trainer does, for a second or more: data_wait_seconds and
/// data_wait_share, of that time.
nlohmann::ordered_json benchmark_data(const std::shared_ptr<const PretrainingShards>& shards,
                                      const DataBenchmarkOptions& options);

}  // namespace bert
