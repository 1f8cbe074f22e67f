// Shards for loaders, and their batches taken apart.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cuda_ext/packed_batch.h"
#include "data/examples/pretraining_data.h"
#include "data/formats/shard.h"
#include "data/loader/global_step.h"
#include "tests/support/example_data.h"
#include "tests/testing.h"

namespace bert::testing {

/// Made-up examples 0 .. count - 1 in two shards, a third of them in the first.
inline std::shared_ptr<const PretrainingShards> made_up_shards(const TemporaryDirectory& directory, int64_t count) {
  write_made_up_shard(directory.path("a.shard"), 0, count / 3);
  write_made_up_shard(directory.path("b.shard"), count / 3, count - count / 3);
  return std::make_shared<PretrainingShards>(std::vector{directory.path()});
}

inline std::vector<int64_t> values(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kLong);
  return {wide.const_data_ptr<int64_t>(), wide.const_data_ptr<int64_t>() + wide.numel()};
}

using Sequences = std::map<int64_t, PretrainingExample>;

/// The padding of a static batch: sequences of the token 0 that cover the tail, and empty ones.
inline void check_padding(const PackedBatch& batch) {
  const auto ends = values(batch.cu_seqlens), ids = values(batch.input_ids), positions = values(batch.position_ids),
             masked = values(batch.masked_positions);
  for (auto i = static_cast<size_t>(batch.num_sequences() - batch.padding.sequences); i + 1 < ends.size(); ++i) {
    REQUIRE(ends[i + 1] - ends[i] <= batch.max_seqlen);
    for (int64_t t = ends[i]; t < ends[i + 1]; ++t) {
      REQUIRE(ids[static_cast<size_t>(t)] == 0);
      REQUIRE(positions[static_cast<size_t>(t)] == t - ends[i]);
    }
  }
  for (auto i = static_cast<size_t>(batch.num_masked() - batch.padding.masked); i < masked.size(); ++i)
    REQUIRE(masked[i] == 0);
  REQUIRE(batch.counted[0].item<float>() == static_cast<float>(batch.num_masked() - batch.padding.masked));
  REQUIRE(batch.counted[1].item<float>() == static_cast<float>(batch.num_sequences() - batch.padding.sequences));
}

/// The example of each sequence number, taken from a batch. Fails if the parts of the batch contradict each other.
inline void take_apart(const PackedBatch& batch, Sequences& sequences) {
  const auto ids = values(batch.input_ids), types = values(batch.token_type_ids),
             positions = values(batch.position_ids);
  const auto keys = values(batch.dropout_keys), ends = values(batch.cu_seqlens),
             masked = values(batch.masked_positions);
  const auto originals = values(batch.masked_ids), labels = values(batch.next_sentence_labels);
  REQUIRE(ends.front() == 0);
  REQUIRE(ends.back() == batch.num_tokens());
  REQUIRE(batch.first_sequence == keys.front() >> 16);
  REQUIRE(static_cast<int64_t>(labels.size()) == batch.num_sequences());
  int64_t longest = 0;
  size_t mask = 0;
  const auto real = static_cast<size_t>(batch.num_sequences() - batch.padding.sequences),
             real_masked = static_cast<size_t>(batch.num_masked() - batch.padding.masked);
  for (size_t i = 0; i < real; ++i) {
    PretrainingExample example;
    const int64_t sequence = keys.at(static_cast<size_t>(ends[i])) >> 16;
    example.segment_b_start = static_cast<int32_t>(ends[i + 1] - ends[i]);
    for (int64_t t = ends[i]; t < ends[i + 1]; ++t) {
      const auto at = static_cast<size_t>(t);
      REQUIRE(positions[at] == t - ends[i]);
      REQUIRE(keys[at] == (sequence << 16 | positions[at]));
      example.input_ids.push_back(static_cast<int32_t>(ids[at]));
      example.segment_b_start -= static_cast<int32_t>(types[at]);
      if (t > ends[i]) REQUIRE(types[at] >= types[at - 1]);
    }
    for (; mask < real_masked && masked[mask] < ends[i + 1]; ++mask) {
      example.masked_positions.push_back(static_cast<int32_t>(masked[mask] - ends[i]));
      example.masked_ids.push_back(static_cast<int32_t>(originals[mask]));
    }
    example.is_random_next = labels[i] != 0;
    REQUIRE(sequences.emplace(sequence, example).second);
    longest = std::max(longest, ends[i + 1] - ends[i]);
  }
  REQUIRE(mask == real_masked);
  REQUIRE(ends[real] == batch.num_tokens() - batch.padding.tokens);
  if (batch.counted.defined()) return check_padding(batch);
  REQUIRE(batch.max_seqlen == longest);
}

/// take_apart() of all micro-batches of this rank's part of a step.
inline void take_apart(const GlobalStep& step, Sequences& sequences) {
  for (const PackedBatch& batch : step.micro_batches) take_apart(batch, sequences);
}

/// The place of each sequence number of a step.
inline std::map<int64_t, ExampleOrder::Place> places_of(const GlobalStep& step) {
  std::map<int64_t, ExampleOrder::Place> places;
  auto place = step.places.begin();
  for (const PackedBatch& batch : step.micro_batches) {
    for (const int64_t number : sequence_numbers(batch)) places.emplace(number, *place++);
  }
  REQUIRE(place == step.places.end());
  return places;
}

}  // namespace bert::testing
