// Random pre-training batches for benchmarks and tests.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <vector>

#include "cuda_ext/packed_batch.h"

namespace bert {

struct RandomBatchOptions {
  std::vector<int64_t> lengths;              // of the sequences, each at least 1
  int64_t vocab_size = 0;                    // above kFirstToken
  int64_t first_sequence = 0;                // number of the first sequence in the dropout keys
  bool padded = false;                       // [PAD] fills every sequence to the longest, and is computed like a token
  static constexpr int64_t kFirstToken = 5;  // smaller ids are special tokens in BERT's vocabularies
};

/// Random tokens on the CPU; 15 % of each sequence are masked (at least one token), as in the published recipes.
PackedBatch random_batch(const RandomBatchOptions& options, at::Generator generator);

/// `count` of `lengths`, used in turn, from index `first` on.
std::vector<int64_t> lengths_in_turn(const std::vector<int64_t>& lengths, int64_t first, int64_t count);

}  // namespace bert
