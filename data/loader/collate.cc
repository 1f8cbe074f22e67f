#include "data/loader/collate.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <span>
#include <utility>

#include "data/loader/batch_plan.h"
#include "data/random/counter_random.h"
#include "data/random/permutation.h"

namespace bert {
namespace {

/// The key of the masks of an example. The constant keeps the draws apart from those of the order of examples.
uint64_t mask_key(uint64_t seed, const ExampleOrder::Place& place) {
  constexpr uint64_t kMasks = 0x6d61736b73;  // "masks"
  const uint64_t epoch_key = mix_bits(mix_bits(seed ^ kMasks) ^ static_cast<uint64_t>(place.epoch));
  return mix_bits(epoch_key ^ static_cast<uint64_t>(place.example));
}

/// Pointers to the tensors that are filled from front to back.
struct Cursor {
  int64_t *input_ids, *token_type_ids, *position_ids, *dropout_keys;
  int64_t *masked_positions, *masked_ids, *masked_sources, *labels;
  int32_t* ends;
};

/// Fills what is behind the `real` part of a static batch: Note [Static batches] in batch_plan.h.
void fill_padding(PackedBatch& batch, const BatchShape& real) {
  const int64_t tokens = batch.num_tokens();
  batch.padding = {.tokens = tokens - real.tokens,
                   .sequences = batch.num_sequences() - real.sequences,
                   .masked = batch.num_masked() - real.masked};
  const auto zero = [](const at::Tensor& tensor, int64_t begin) {
    if (!tensor.defined()) return;
    auto* const data = tensor.mutable_data_ptr<int64_t>();
    std::fill(data + begin, data + tensor.numel(), 0);
  };
  for (const at::Tensor* tensor : {&batch.input_ids, &batch.token_type_ids}) zero(*tensor, real.tokens);
  for (const at::Tensor* tensor : {&batch.masked_positions, &batch.masked_ids, &batch.masked_sources})
    zero(*tensor, real.masked);
  zero(batch.next_sentence_labels, real.sequences);
  auto *const positions = batch.position_ids.mutable_data_ptr<int64_t>(), *const keys =
                                                                              batch.dropout_keys
                                                                                  .mutable_data_ptr<int64_t>();
  auto* const ends = batch.cu_seqlens.mutable_data_ptr<int32_t>() + 1;
  int64_t token = real.tokens;
  for (int64_t sequence = real.sequences; sequence < batch.num_sequences(); ++sequence) {
    const int64_t length = std::min(tokens - token, batch.max_seqlen);
    for (int64_t position = 0; position < length; ++position, ++token) {
      positions[token] = position;
      keys[token] = dropout_key(0, position);
    }
    ends[sequence] = static_cast<int32_t>(token);
  }
  auto* const counted = batch.counted.mutable_data_ptr<float>();
  counted[0] = static_cast<float>(real.masked);  // exact below 2^24
  counted[1] = static_cast<float>(real.sequences);
}

}  // namespace

Collator::Collator(std::optional<DynamicMasking> masking, const CollatorConfig& config)
    : masking_(std::move(masking)), config_(config) {
  if (masking_) masker_.emplace(masking_->vocabulary, masking_->config);
}

void Collator::draw_masks(const std::vector<NumberedSequence>& sequences) {
  drawn_ids_.clear();
  drawn_.clear();
  drawn_ends_.clear();
  for (const NumberedSequence& sequence : sequences) {
    const ShardRow& row = sequence.data.row;
    const size_t begin = drawn_ids_.size();
    drawn_ids_.resize(begin + static_cast<size_t>(row.length));
    const std::span<int32_t> ids = std::span(drawn_ids_).subspan(begin);
    row.copy_input_ids(ids.data());
    row.restore_masked_ids(ids.data());
    CounterRandom random(mask_key(config_.seed, sequence.data.place));
    const std::vector<MaskedToken>& masked = masker_->mask(ids, random);
    drawn_.insert(drawn_.end(), masked.begin(), masked.end());
    drawn_ends_.push_back(drawn_.size());
  }
}

PackedBatch Collator::operator()(const std::vector<NumberedSequence>& sequences) {
  if (masker_) draw_masks(sequences);
  BatchShape real{.sequences = std::ssize(sequences), .masked = std::ssize(drawn_)};
  for (const NumberedSequence& sequence : sequences) {
    real.tokens += sequence.data.row.length;
    real.max_seqlen = std::max(real.max_seqlen, sequence.data.row.length);
    if (!masker_) real.masked += sequence.data.row.num_masked;
  }
  const bool is_static = config_.tokens > 0;
  const BatchShape shape = is_static ? static_shape(real, config_.tokens, config_.longest_row) : real;
  const auto make = [&](int64_t count, at::ScalarType type) {
    return at::empty({count}, at::TensorOptions().dtype(type).pinned_memory(config_.pin_memory));
  };
  PackedBatch batch;
  batch.max_seqlen = shape.max_seqlen;
  batch.first_sequence = sequences.front().number;
  for (at::Tensor* tensor : {&batch.input_ids, &batch.token_type_ids, &batch.position_ids, &batch.dropout_keys}) {
    *tensor = make(shape.tokens, at::kLong);
  }
  batch.masked_positions = make(shape.masked, at::kLong);
  batch.masked_ids = make(shape.masked, at::kLong);
  if (config_.name_sources) batch.masked_sources = make(shape.masked, at::kLong);
  if (config_.pairs) batch.next_sentence_labels = make(shape.sequences, at::kLong);
  batch.cu_seqlens = make(shape.sequences + 1, at::kInt);
  if (is_static) batch.counted = make(2, at::kFloat);

  Cursor at{.input_ids = batch.input_ids.mutable_data_ptr<int64_t>(),
            .token_type_ids = batch.token_type_ids.mutable_data_ptr<int64_t>(),
            .position_ids = batch.position_ids.mutable_data_ptr<int64_t>(),
            .dropout_keys = batch.dropout_keys.mutable_data_ptr<int64_t>(),
            .masked_positions = batch.masked_positions.mutable_data_ptr<int64_t>(),
            .masked_ids = batch.masked_ids.mutable_data_ptr<int64_t>(),
            .masked_sources = config_.name_sources ? batch.masked_sources.mutable_data_ptr<int64_t>() : nullptr,
            .labels = config_.pairs ? batch.next_sentence_labels.mutable_data_ptr<int64_t>() : nullptr,
            .ends = batch.cu_seqlens.mutable_data_ptr<int32_t>()};
  int64_t token = 0, mask = 0;
  *at.ends++ = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const ShardRow& row = sequences[i].data.row;
    for (int64_t position = 0; position < row.length; ++position) {
      at.token_type_ids[token + position] = position >= row.segment_b_start;
      at.position_ids[token + position] = position;
      at.dropout_keys[token + position] = dropout_key(sequences[i].number, position);
    }
    const int64_t first_mask = mask;
    if (masker_) {
      std::copy_n(drawn_ids_.data() + token, row.length, at.input_ids + token);
      for (; mask < static_cast<int64_t>(drawn_ends_[i]); ++mask) {
        at.masked_positions[mask] = token + drawn_[static_cast<size_t>(mask)].position;
        at.masked_ids[mask] = drawn_[static_cast<size_t>(mask)].id;
      }
    } else {
      row.copy_input_ids(at.input_ids + token);
      row.copy_masked_ids(at.masked_ids + mask);
      for (int64_t j = 0; j < row.num_masked; ++j) at.masked_positions[mask + j] = token + row.masked_position(j);
      mask += row.num_masked;
    }
    if (config_.name_sources)
      std::fill(at.masked_sources + first_mask, at.masked_sources + mask, sequences[i].data.place.source);
    if (config_.pairs) *at.labels++ = row.is_random_next;
    token += row.length;
    *at.ends++ = static_cast<int32_t>(token);
  }
  if (is_static) fill_padding(batch, real);
  return batch;
}

}  // namespace bert
