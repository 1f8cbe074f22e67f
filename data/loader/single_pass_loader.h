// One pass over the first examples of shards, in their order, as an evaluation reads them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "cuda_ext/packed_batch.h"
#include "data/loader/collate.h"
#include "data/loader/prefetcher.h"

namespace bert {

struct SinglePassConfig {
  int64_t batch_size = 8;                      // sequences; the last batch may be smaller
  int64_t max_sequences = 0;                   // over all ranks; 0: all examples
  int64_t rank = 0, world_size = 1;            // batch i of the pass goes to rank i % world_size
  std::optional<DynamicMasking> masking = {};  // without it: the masks in the shards
};

class SinglePassLoader {
 public:
  SinglePassLoader(const std::shared_ptr<const PretrainingShards>& shards, const SinglePassConfig& config);

  /// This rank's next batch, on the CPU; nothing after the last one. Throws DataError.
  std::optional<PackedBatch> next() { return prefetcher_.next(); }

 private:
  Prefetcher<PackedBatch> prefetcher_;
};

}  // namespace bert
