// Pre-training examples from text, as Google's create_pretraining_data.py makes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bert {

/// [CLS] A [SEP] B [SEP] with some tokens replaced.
struct PretrainingExample {
  std::vector<int32_t> input_ids;         // as the model sees them
  int32_t segment_b_start = 0;            // index of B's first token; token_type_ids are 1 from here on
  std::vector<int32_t> masked_positions;  // ascending
  std::vector<int32_t> masked_ids;        // the original ids at those positions
  bool is_random_next = false;            // B is not what follows A
  bool operator==(const PretrainingExample&) const = default;
};

/// Throws DataError when the parts of an example do not fit together or to these bounds.
void validate(const PretrainingExample& example, int64_t vocab_size, int64_t max_seq_length);

}  // namespace bert
