#include "data/loader/task_loader.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "data/loader/batch_plan.h"

namespace bert {
namespace {

/// PackedBatch::windows of units with `counts` sequences each, in a row. `most` columns.
at::Tensor windows_of(const std::vector<int64_t>& counts, int64_t most, bool pin_memory) {
  at::Tensor windows =
      at::empty({std::ssize(counts), most}, at::TensorOptions().dtype(at::kLong).pinned_memory(pin_memory));
  auto* place = windows.mutable_data_ptr<int64_t>();
  for (int64_t first = 0; const int64_t count : counts) {
    for (int64_t i = 0; i < most; ++i) *place++ = i < count ? first + i : -1;
    first += count;
  }
  return windows;
}

/// Fills PackedBatch::labels of the sequences at `members`, or of texts, the first sequence of each.
at::Tensor labels_of(const TaskFeatures& features, const std::vector<const TaskSequence*>& members, int64_t choices,
                     int64_t tokens, bool pin_memory) {
  const auto make = [&](at::IntArrayRef shape, at::ScalarType type) {
    return at::empty(shape, at::TensorOptions().dtype(type).pinned_memory(pin_memory));
  };
  const auto count = static_cast<int64_t>(members.size());
  if (features.kind == TaskKind::kRegression) {
    at::Tensor values =
        features.num_outputs == 1 ? make({count}, at::kFloat) : make({count, features.num_outputs}, at::kFloat);
    auto* value = values.mutable_data_ptr<float>();
    for (const TaskSequence* sequence : members) value = std::ranges::copy(sequence->values, value).out;
    return values;
  }
  if (features.kind == TaskKind::kEmbedding) {
    at::Tensor values = make({count / choices}, at::kFloat);
    auto* value = values.mutable_data_ptr<float>();
    for (int64_t i = 0; i < count; i += choices) *value++ = members[static_cast<size_t>(i)]->value;
    return values;
  }
  if (features.kind == TaskKind::kTokenClassification) {
    at::Tensor labels = make({tokens}, at::kLong);
    auto* label = labels.mutable_data_ptr<int64_t>();
    for (const TaskSequence* sequence : members) {
      label = std::ranges::copy(sequence->token_labels, label).out;
    }
    return labels;
  }
  if (features.kind == TaskKind::kQuestionAnswering) {
    at::Tensor positions = make({count, 2}, at::kLong);
    auto* position = positions.mutable_data_ptr<int64_t>();
    for (const TaskSequence* sequence : members) {
      *position++ = sequence->start_position;
      *position++ = sequence->end_position;
    }
    return positions;
  }
  if (features.multi_label) {
    at::Tensor rows = make({count, features.num_outputs}, at::kFloat).zero_();
    auto* row = rows.mutable_data_ptr<float>();
    for (const TaskSequence* sequence : members) {
      for (const int32_t label : sequence->labels) row[label] = 1;
      row += features.num_outputs;
    }
    return rows;
  }
  at::Tensor labels = make({count / choices}, at::kLong);
  auto* label = labels.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < count; i += choices) *label++ = members[static_cast<size_t>(i)]->label;
  return labels;
}

/// The places of [E1] and [E2] of each sequence among the tokens of all.
at::Tensor marker_positions(std::span<const NumberedTaskSequence> members, bool pin_memory) {
  at::Tensor positions =
      at::empty({2 * std::ssize(members)}, at::TensorOptions().dtype(at::kLong).pinned_memory(pin_memory));
  auto* position = positions.mutable_data_ptr<int64_t>();
  int64_t token = 0;
  for (const NumberedTaskSequence& member : members) {
    *position++ = token + member.sequence->start_position;
    *position++ = token + member.sequence->end_position;
    token += std::ssize(member.sequence->input_ids);
  }
  return positions;
}

}  // namespace

PackedBatch pack_sequences(const TaskFeatures& features, std::span<const NumberedTaskSequence> members,
                           bool pin_memory) {
  int64_t tokens = 0;
  for (const NumberedTaskSequence& member : members) tokens += std::ssize(member.sequence->input_ids);
  const auto make = [&](int64_t count, at::ScalarType type) {
    return at::empty({count}, at::TensorOptions().dtype(type).pinned_memory(pin_memory));
  };
  PackedBatch batch;
  batch.first_sequence = members.front().number;
  for (at::Tensor* tensor : {&batch.input_ids, &batch.token_type_ids, &batch.position_ids, &batch.dropout_keys}) {
    *tensor = make(tokens, at::kLong);
  }
  batch.masked_positions = features.start_markers ? marker_positions(members, pin_memory) : make(0, at::kLong);
  batch.cu_seqlens = make(std::ssize(members) + 1, at::kInt);
  auto* ids = batch.input_ids.mutable_data_ptr<int64_t>();
  auto* types = batch.token_type_ids.mutable_data_ptr<int64_t>();
  auto* positions = batch.position_ids.mutable_data_ptr<int64_t>();
  auto* keys = batch.dropout_keys.mutable_data_ptr<int64_t>();
  auto* ends = batch.cu_seqlens.mutable_data_ptr<int32_t>();
  *ends++ = 0;
  int64_t token = 0;
  for (const NumberedTaskSequence& member : members) {
    const TaskSequence& sequence = *member.sequence;
    const auto length = std::ssize(sequence.input_ids);
    std::ranges::copy(sequence.input_ids, ids + token);
    std::ranges::copy(sequence.token_type_ids, types + token);
    for (int64_t position = 0; position < length; ++position) {
      positions[token + position] = position;
      keys[token + position] = dropout_key(member.number, position);
    }
    token += length;
    *ends++ = static_cast<int32_t>(token);
    batch.max_seqlen = std::max<int64_t>(batch.max_seqlen, length);
  }
  return batch;
}

PackedBatch pack_task_sequences(const TaskFeatures& features, int64_t choices, std::span<const int64_t> units,
                                std::span<const int64_t> numbers, bool pin_memory, int64_t stride) {
  if (stride == 0) stride = features.most_sequences(choices);
  std::vector<NumberedTaskSequence> members;
  std::vector<const TaskSequence*> labelled;
  std::vector<int64_t> counts;
  for (size_t i = 0; i < units.size(); ++i) {
    const auto [begin, end] = features.unit(units[i], choices);
    counts.push_back(end - begin);
    for (int64_t place = begin; place < end; ++place) {
      const TaskSequence* sequence = &features.sequences[static_cast<size_t>(place)];
      members.push_back({numbers[i] * stride + place - begin, sequence});
      if (place == begin || features.text_ends.empty()) labelled.push_back(sequence);
    }
  }
  PackedBatch batch = pack_sequences(features, members, pin_memory);
  if (!features.text_ends.empty()) batch.windows = windows_of(counts, stride, pin_memory);
  batch.labels = labels_of(features, labelled, choices, batch.num_tokens(), pin_memory);
  return batch;
}

void check_division(const TaskLoaderConfig& config) {
  TORCH_CHECK(config.micro_batch_size >= 1 && config.global_batch_size % config.micro_batch_size == 0 &&
                  config.global_batch_size / config.micro_batch_size >= config.world_size,
              "global_batch_size ", config.global_batch_size, " must be a multiple of micro_batch_size ",
              config.micro_batch_size, " and have one for each of the ", config.world_size, " ranks");
}

std::vector<std::vector<int64_t>> micro_batches_of_rank(const std::vector<int64_t>& weights,
                                                        const TaskLoaderConfig& config) {
  const auto micro_batches = deal_evenly(weights, config.global_batch_size / config.micro_batch_size);
  std::vector<int64_t> sums;
  for (const auto& members : micro_batches) {
    int64_t& sum = sums.emplace_back(0);
    for (const int64_t member : members) sum += weights[static_cast<size_t>(member)];
  }
  std::vector<std::vector<int64_t>> own;
  const auto of_ranks = deal_evenly(sums, config.world_size);
  for (const int64_t index : of_ranks[static_cast<size_t>(config.rank)])
    own.push_back(micro_batches[static_cast<size_t>(index)]);
  return own;
}

TaskLoader::TaskLoader(std::shared_ptr<const TaskFeatures> features, const TaskLoaderConfig& config)
    : features_(std::move(features)),
      config_(config),
      order_({{.name = "", .examples = features_->units(config.choices), .weight = 1}}, config.seed, /*shuffle=*/true),
      position_{.seed = config.seed},
      most_(features_->most_sequences(config.choices)) {
  check_division(config);
  for (int64_t unit = 0; unit < order_.end_of(0); ++unit) heaviest_ = std::max(heaviest_, weight(unit));
}

/// The number of tokens of a unit.
int64_t TaskLoader::weight(int64_t unit) const { return features_->tokens_of(unit, config_.choices); }

std::vector<std::vector<int64_t>> TaskLoader::plan_step() {
  const int64_t begin = position_.consumed_sequences;
  std::vector<int64_t> weights;
  for (int64_t i = 0; i < config_.global_batch_size; ++i) weights.push_back(weight(order_(begin + i).example));
  std::vector<std::vector<int64_t>> own = micro_batches_of_rank(weights, config_);
  for (std::vector<int64_t>& members : own) {
    for (int64_t& number : members) number += begin;
  }
  return own;
}

GlobalStep TaskLoader::next_step() {
  GlobalStep step;
  step.of_all_ranks = config_.global_batch_size / config_.micro_batch_size;
  for (const std::vector<int64_t>& numbers : plan_step()) {
    std::vector<int64_t> units;
    for (const int64_t number : numbers) {
      const ExampleOrder::Place place = order_(number);
      units.push_back(place.example);
      const auto [begin, end] = features_->unit(place.example, config_.choices);
      step.places.insert(step.places.end(), static_cast<size_t>(end - begin), place);
    }
    step.micro_batches.push_back(
        pack_task_sequences(*features_, config_.choices, units, numbers, config_.pin_memory, most_));
    step.capacity += config_.micro_batch_size * heaviest_;
  }
  position_.consumed_sequences += config_.global_batch_size;
  ++position_.consumed_steps;
  step.end = position_;
  return step;
}

void TaskLoader::restore(const SamplerState& state) {
  check_position(state, config_.seed);
  position_ = state;
}

}  // namespace bert
