// Times the loader of pre-training batches alone.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>

#include "data/formats/shard.h"
#include "data/loader/dataloader.h"

namespace bert {

struct DataBenchmarkOptions {
  DataLoaderConfig loader;  // must repeat
  int64_t steps = 1000, warmup = 10;
};

/// Takes `warmup` batches, then `steps` batches at full speed: sequences_per_second, tokens_per_second,
/// megabytes_per_second (of the examples as stored in the shards), ms_median and other percentiles of a batch.
nlohmann::ordered_json benchmark_data(const std::shared_ptr<const PretrainingShards>& shards,
                                      const DataBenchmarkOptions& options);

}  // namespace bert
