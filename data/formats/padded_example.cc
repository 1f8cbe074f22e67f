#include "data/formats/padded_example.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "data/io/error.h"

namespace bert {
namespace {

constexpr int64_t kIdLimit = int64_t{std::numeric_limits<int32_t>::max()} + 1;

/// The number of leading elements equal to `value`. Throws DataError if an element after them is not `rest`.
size_t leading(const std::vector<int64_t>& column, size_t count, int64_t value, int64_t rest, const char* name) {
  size_t i = 0;
  while (i < count && column[i] == value) ++i;
  for (size_t after = i; after < count; ++after) {
    if (column[after] != rest)
      throw DataError(fmt::format("{}[{}] is {}, expected {}", name, after, column[after],
                                  after == i ? fmt::format("{} or {}", value, rest) : std::to_string(rest)));
  }
  return i;
}

int32_t as_id(int64_t value, const char* name) {
  if (value < 0 || value >= kIdLimit) throw DataError(fmt::format("{} has {}, which is no id", name, value));
  return static_cast<int32_t>(value);
}

void unpad_masks(const PaddedExample& padded, PretrainingExample& example) {
  example.masked_positions.clear();
  example.masked_ids.clear();
  const size_t count = padded.masked_lm_positions.size();
  const bool weighted = !padded.masked_lm_weights.empty();
  if (padded.masked_lm_ids.size() != count || (weighted && padded.masked_lm_weights.size() != count)) {
    throw DataError(fmt::format("{} masked_lm_positions, {} masked_lm_ids and {} masked_lm_weights", count,
                                padded.masked_lm_ids.size(), padded.masked_lm_weights.size()));
  }
  size_t masks = count;
  if (!weighted) {  // [CLS] is never masked, so position 0 is padding: NVIDIA's loader reads it so, too
    masks = static_cast<size_t>(std::ranges::find(padded.masked_lm_positions, 0) - padded.masked_lm_positions.begin());
    for (size_t i = masks; i < count; ++i) {
      if (padded.masked_lm_positions[i] != 0)
        throw DataError(fmt::format("masked_lm_positions[{}] is {} after a 0, which ends the masks", i,
                                    padded.masked_lm_positions[i]));
    }
  }
  for (size_t i = 0; i < masks; ++i) {
    if (weighted) {
      const float weight = padded.masked_lm_weights[i];
      if (weight == 0) continue;
      if (weight != 1)
        throw DataError(fmt::format("masked_lm_weights[{}] is {}, expected 1, or 0 for padding", i, weight));
    }
    example.masked_positions.push_back(as_id(padded.masked_lm_positions[i], "masked_lm_positions"));
    example.masked_ids.push_back(as_id(padded.masked_lm_ids[i], "masked_lm_ids"));
  }
}

template <class T>
void fill(std::vector<T>& column, int64_t size) {
  column.assign(static_cast<size_t>(size), T{});
}

}  // namespace

void pad(const PretrainingExample& example, int64_t max_seq_length, int64_t max_predictions, PaddedExample& padded) {
  const size_t length = example.input_ids.size(), masks = example.masked_ids.size();
  if (static_cast<int64_t>(length) > max_seq_length || static_cast<int64_t>(masks) > max_predictions) {
    throw DataError(fmt::format("an example has {} tokens and {} masks; the file has room for {} and {}", length, masks,
                                max_seq_length, max_predictions));
  }
  for (auto* column : {&padded.input_ids, &padded.input_mask, &padded.segment_ids}) fill(*column, max_seq_length);
  for (auto* column : {&padded.masked_lm_positions, &padded.masked_lm_ids}) fill(*column, max_predictions);
  fill(padded.masked_lm_weights, max_predictions);
  std::ranges::copy(example.input_ids, padded.input_ids.begin());
  std::fill_n(padded.input_mask.begin(), length, 1);
  const auto second = static_cast<size_t>(example.segment_b_start);
  std::fill_n(padded.segment_ids.begin() + example.segment_b_start, length - second, 1);
  std::ranges::copy(example.masked_positions, padded.masked_lm_positions.begin());
  std::ranges::copy(example.masked_ids, padded.masked_lm_ids.begin());
  std::fill_n(padded.masked_lm_weights.begin(), masks, 1.0F);
  padded.next_sentence_label = example.is_random_next ? 1 : 0;
}

void unpad(const PaddedExample& padded, PretrainingExample& example) {
  const size_t columns = padded.input_ids.size();
  if (padded.input_mask.size() != columns || padded.segment_ids.size() != columns) {
    throw DataError(fmt::format("{} input_ids, {} input_mask and {} segment_ids", columns, padded.input_mask.size(),
                                padded.segment_ids.size()));
  }
  const size_t length = leading(padded.input_mask, columns, 1, 0, "input_mask");
  example.input_ids.clear();
  for (size_t i = 0; i < length; ++i) example.input_ids.push_back(as_id(padded.input_ids[i], "input_ids"));
  example.segment_b_start = static_cast<int32_t>(leading(padded.segment_ids, length, 0, 1, "segment_ids"));
  unpad_masks(padded, example);
  if (padded.next_sentence_label != 0 && padded.next_sentence_label != 1)
    throw DataError(fmt::format("next_sentence_labels is {}, expected 0 or 1", padded.next_sentence_label));
  example.is_random_next = padded.next_sentence_label == 1;
  validate(example, kIdLimit, static_cast<int64_t>(columns));
}

}  // namespace bert
