// An example as the files of Google's and NVIDIA's programs hold it: columns of fixed lengths, padded with zeros.
#pragma once

#include <cstdint>
#include <vector>

#include "data/examples/pretraining_data.h"

namespace bert {

/// The most tokens of an example, as in a shard.
inline constexpr int64_t kMostColumns = 65535;

/// The columns have the names that create_pretraining_data.py gives them.
struct PaddedExample {
  std::vector<int64_t> input_ids, input_mask, segment_ids;  // max_seq_length each; input_mask is 1 for a token
  std::vector<int64_t> masked_lm_positions, masked_lm_ids;  // max_predictions_per_seq each
  std::vector<float> masked_lm_weights;  // 1 for a mask, 0 for padding; empty: the first position 0 ends the masks
  int64_t next_sentence_label = 0;       // 1: B does not follow A
};

/// Makes `padded` the padded form of `example`, with weights. Throws DataError if the example has more than
/// `max_seq_length` tokens or `max_predictions` masks.
void pad(const PretrainingExample& example, int64_t max_seq_length, int64_t max_predictions, PaddedExample& padded);

/// Makes `example` what `padded` holds. Throws DataError if the columns contradict each other: their lengths, a mask
/// with a token after padding, segments other than 0...0 1...1, a label other than 0 and 1, a weight other than 0 and 1,
/// positions outside of the tokens or out of order, a value that is no id.
void unpad(const PaddedExample& padded, PretrainingExample& example);

}  // namespace bert
