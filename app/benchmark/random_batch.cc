#include "app/benchmark/random_batch.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace bert {

PackedBatch random_batch(const RandomBatchOptions& options, at::Generator generator) {
  constexpr double kMaskedShare = 0.15;
  const auto integers = at::TensorOptions().dtype(at::kLong);
  const int64_t longest = *std::max_element(options.lengths.begin(), options.lengths.end());
  std::vector<int64_t> positions, keys, masked, padding;
  std::vector<int32_t> cu_seqlens = {0};
  for (size_t row = 0; row < options.lengths.size(); ++row) {
    const int64_t length = options.lengths[row], start = cu_seqlens.back();
    const auto count = std::max<int64_t>(1, std::lround(kMaskedShare * static_cast<double>(length)));
    const at::Tensor picked = std::get<0>(at::randperm(length, generator, integers).narrow(0, 0, count).sort());
    for (int64_t i = 0; i < count; ++i) masked.push_back(start + picked.const_data_ptr<int64_t>()[i]);
    const int64_t places = options.padded ? longest : length;
    for (int64_t position = 0; position < places; ++position) {
      if (position >= length) padding.push_back(start + position);
      positions.push_back(position);
      keys.push_back(dropout_key(options.first_sequence + static_cast<int64_t>(row), position));
    }
    cu_seqlens.push_back(static_cast<int32_t>(start + places));
  }
  const auto tokens = static_cast<int64_t>(positions.size());
  PackedBatch batch;
  batch.max_seqlen = longest;
  batch.first_sequence = options.first_sequence;
  batch.input_ids = at::randint(RandomBatchOptions::kFirstToken, options.vocab_size, {tokens}, generator, integers);
  if (!padding.empty()) batch.input_ids.index_fill_(0, at::tensor(padding, integers), 0);
  batch.token_type_ids = at::zeros({tokens}, integers);
  batch.position_ids = at::tensor(positions, integers);
  batch.dropout_keys = at::tensor(keys, integers);
  batch.cu_seqlens = at::tensor(cu_seqlens, at::kInt);
  batch.masked_positions = at::tensor(masked, integers);
  batch.masked_ids = batch.input_ids.index_select(0, batch.masked_positions);
  batch.next_sentence_labels = at::randint(0, 2, {static_cast<int64_t>(options.lengths.size())}, generator, integers);
  return batch;
}

std::vector<int64_t> lengths_in_turn(const std::vector<int64_t>& lengths, int64_t first, int64_t count) {
  std::vector<int64_t> result;
  for (int64_t i = first; i < first + count; ++i) result.push_back(lengths[static_cast<size_t>(i) % lengths.size()]);
  return result;
}

}  // namespace bert
