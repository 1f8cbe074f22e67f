// Made-up pre-training examples that tests write into shards and recognise later.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "data/formats/shard.h"
#include "data/io/files.h"
#include "data/random/permutation.h"
#include "tests/support/text_file.h"

namespace bert::testing {

/// Example `index` of a made-up set: 5 to 16 tokens, 0 to 3 of them masked. input_ids[1] is index % 1000 + 4, and all
/// ids are below 1004.
inline PretrainingExample made_up_example(int64_t index) {
  const uint64_t bits = mix_bits(static_cast<uint64_t>(index));
  PretrainingExample example;
  const int32_t first_id = static_cast<int32_t>(bits >> 8 & 1023);
  const int32_t length = 5 + static_cast<int32_t>(bits % 12);
  for (int32_t i = 0; i < length; ++i) example.input_ids.push_back(4 + (first_id + i) % 1000);
  example.input_ids[1] = 4 + static_cast<int32_t>(index % 1000);
  example.segment_b_start = 2 + static_cast<int32_t>(bits >> 4 & 1);
  for (int32_t i = 0; i < static_cast<int32_t>(bits >> 20 & 3); ++i) {
    example.masked_positions.push_back(i + 2);
    example.masked_ids.push_back(100 + i);
  }
  example.is_random_next = (bits >> 30 & 1) != 0;
  return example;
}

/// Writes a shard of made-up examples first .. first + count - 1 for a vocabulary of `vocab_size` tokens.
inline ShardManifest write_made_up_shard(const std::string& path, int64_t first, int64_t count,
                                         int64_t vocab_size = 1004) {
  ShardOptions options;
  options.vocab_size = vocab_size;
  options.max_seq_length = 16;
  options.vocabulary_checksum = "0123456789abcdef0123456789abcdef";
  options.parameters = {{"random_seed", "12345"}};
  ShardWriter writer(path, options);
  for (int64_t i = 0; i < count; ++i) writer.add(made_up_example(first + i));
  return writer.commit();
}

/// Flips a bit in the ids of a row.
inline void damage_row(const std::string& path, int64_t row) {
  constexpr size_t kOffsetsStart = 32, kIdsInRow = 12;  // Note [Shard format]
  std::string bytes = read_file(path);
  uint64_t offsets = 0, start = 0;
  std::memcpy(&offsets, bytes.data() + kOffsetsStart, sizeof offsets);
  std::memcpy(&start, bytes.data() + offsets + static_cast<size_t>(row) * sizeof start, sizeof start);
  bytes[start + kIdsInRow + 2] = static_cast<char>(bytes[start + kIdsInRow + 2] ^ 16);
  write_text(path, bytes);
}

}  // namespace bert::testing
