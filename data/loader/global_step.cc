#include "data/loader/global_step.h"

#include <fmt/format.h>

#include "data/io/error.h"

namespace bert {

void check_position(const SamplerState& state, uint64_t seed) {
  if (state.seed != seed) {
    throw DataError(
        fmt::format("the sampler's state was saved with seed {}, the configuration has {}. Resume with the seed that "
                    "the run began with.",
                    state.seed, seed));
  }
  if (state.consumed_sequences < 0)
    throw DataError(fmt::format("the sampler's state has {} consumed sequences", state.consumed_sequences));
}

std::vector<int64_t> sequence_numbers(const PackedBatch& batch) {
  std::vector<int64_t> numbers;
  const auto* starts = batch.cu_seqlens.const_data_ptr<int32_t>();
  const auto* keys = batch.dropout_keys.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < batch.num_sequences() - batch.padding.sequences; ++i)
    numbers.push_back(sequence_of_dropout_key(keys[starts[i]]));
  return numbers;
}

void DamagedRows::add(const DamagedRows& more) {
  sequences += more.sequences;
  descriptions.insert(more.descriptions.begin(), more.descriptions.end());
}

int64_t GlobalStep::num_tokens() const {
  int64_t tokens = 0;
  for (const PackedBatch& batch : micro_batches) tokens += batch.num_tokens() - batch.padding.tokens;
  return tokens;
}

}  // namespace bert
