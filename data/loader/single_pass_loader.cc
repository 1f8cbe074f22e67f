#include "data/loader/single_pass_loader.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "data/formats/shard.h"
#include "data/loader/sequence_reader.h"

namespace bert {
namespace {

constexpr size_t kBatchesAhead = 4;

/// Makes this rank's batches, one after the other.
std::function<std::optional<PackedBatch>()> maker(const std::shared_ptr<const PretrainingShards>& shards,
                                                  const SinglePassConfig& config) {
  const std::vector<ExampleSource> source = {{.name = "", .examples = shards->size(), .weight = 1}};
  const int64_t end = config.max_sequences > 0 ? std::min(config.max_sequences, shards->size()) : shards->size();
  return [reader = std::make_shared<SequenceReader>(shards, source, /*seed=*/0, /*shuffle=*/false,
                                                    /*replace_damaged=*/false),
          collate = Collator(config.masking, {.pairs = shards->any_pairs()}), size = config.batch_size,
          stride = config.world_size * config.batch_size, end,
          begin = config.rank * config.batch_size]() mutable -> std::optional<PackedBatch> {
    std::vector<NumberedSequence> sequences;
    for (int64_t number = begin; number < std::min(begin + size, end); ++number)
      sequences.push_back({number, reader->read(number)});
    if (sequences.empty()) return std::nullopt;
    begin += stride;
    return collate(sequences);
  };
}

}  // namespace

SinglePassLoader::SinglePassLoader(const std::shared_ptr<const PretrainingShards>& shards,
                                   const SinglePassConfig& config)
    : prefetcher_(maker(shards, config), kBatchesAhead) {}

}  // namespace bert
