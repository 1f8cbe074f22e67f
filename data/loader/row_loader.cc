#include "data/loader/row_loader.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "data/io/error.h"
#include "data/loader/batch_plan.h"

namespace bert {
namespace {

std::vector<double> shares(const std::vector<RowSet>& sets, bool equal) {
  std::vector<double> all;
  all.reserve(sets.size());
  for (const RowSet& set : sets) all.push_back(equal ? 1.0 : static_cast<double>(set.rows()));
  return all;
}

std::vector<uint64_t> hashes_of(const TaskFeatures& features) {
  std::vector<uint64_t> hashes;
  hashes.reserve(features.sequences.size());
  for (const TaskSequence& sequence : features.sequences) {
    hashes.push_back(XXH3_64bits(sequence.input_ids.data(), sequence.input_ids.size() * sizeof(sequence.input_ids[0])));
  }
  return hashes;
}

}  // namespace

int64_t most_columns(const std::vector<RowSet>& sets) {
  return std::ranges::max_element(sets, {}, &RowSet::columns)->columns;
}

RowPicker::RowPicker(const RowSet& set, uint64_t seed, int64_t rows_of_step, bool no_duplicates)
    : rows_of_step_(rows_of_step),
      columns_(set.columns),
      rows_(set.rows()),
      order_({{.name = "", .examples = set.rows(), .weight = 1}}, seed, /*shuffle=*/true) {
  if (no_duplicates) texts_ = hashes_of(*set.features);
}

bool RowPicker::take(const ExampleOrder::Place& place) {
  if (!texts_.empty()) {
    const auto first = texts_.begin() + place.example * columns_;
    const std::vector<uint64_t> own(first, first + columns_);
    for (const uint64_t text : own) {
      if (in_step_.contains(text)) return false;
    }
    in_step_.insert(own.begin(), own.end());
  }
  step_.push_back(place);
  return true;
}

std::vector<ExampleOrder::Place> RowPicker::next() {
  step_.clear();
  in_step_.clear();
  std::vector<ExampleOrder::Place> waiting;
  for (const ExampleOrder::Place& place : waiting_) {
    if (std::ssize(step_) == rows_of_step_ || !take(place)) waiting.push_back(place);
  }
  const int64_t most = read_ + rows_of_step_ + 2 * rows_;
  while (std::ssize(step_) < rows_of_step_) {
    if (read_ == most) {
      throw DataError(
          fmt::format("embedding.no_duplicates: {} rows of a set have texts for {} rows of a step without repetition; "
                      "want {}: set global_batch_size to {} or less, or no_duplicates=false",
                      rows_, step_.size(), rows_of_step_, step_.size()));
    }
    const ExampleOrder::Place place = order_(read_++);
    if (!take(place)) waiting.push_back(place);
  }
  waiting_ = std::move(waiting);
  return step_;
}

RowLoader::RowLoader(std::vector<RowSet> sets, const RowLoaderConfig& config)
    : sets_(std::move(sets)), config_(config), mix_(shares(sets_, config.round_robin)) {
  check_division(config.batches);
  for (const RowSet& set : sets_) {
    for (int64_t row = 0; row < set.rows(); ++row) heaviest_ = std::max(heaviest_, weight(set, row));
  }
  begin();
}

void RowLoader::begin() {
  position_ = {.seed = config_.batches.seed};
  pickers_.clear();
  for (const RowSet& set : sets_)
    pickers_.emplace_back(set, config_.batches.seed, config_.batches.global_batch_size, config_.no_duplicates);
}

int64_t RowLoader::weight(const RowSet& set, int64_t row) const {
  int64_t tokens = 0;
  for (int64_t column = 0; column < set.columns; ++column)
    tokens += std::ssize(set.features->sequences[static_cast<size_t>(row * set.columns + column)].input_ids);
  return tokens;
}

std::pair<int64_t, std::vector<ExampleOrder::Place>> RowLoader::plan_step() {
  const int64_t rows = config_.batches.global_batch_size;
  const int64_t set = mix_(position_.consumed_sequences / rows).source;
  position_.consumed_sequences += rows;
  ++position_.consumed_steps;
  return {set, pickers_[static_cast<size_t>(set)].next()};
}

GlobalStep RowLoader::next_step() {
  const TaskLoaderConfig& batches = config_.batches;
  const int64_t begin = position_.consumed_sequences, stride = most_columns(sets_);
  const auto [number_of_set, rows] = plan_step();
  const RowSet& set = sets_[static_cast<size_t>(number_of_set)];
  std::vector<int64_t> weights;
  for (const ExampleOrder::Place& row : rows) weights.push_back(weight(set, row.example));
  GlobalStep step;
  step.of_all_ranks = batches.global_batch_size / batches.micro_batch_size;
  for (const std::vector<int64_t>& members : micro_batches_of_rank(weights, batches)) {
    std::vector<int64_t> units, numbers;
    for (const int64_t member : members) {
      ExampleOrder::Place place = rows[static_cast<size_t>(member)];
      units.push_back(place.example);
      numbers.push_back(begin + member);
      place.source = number_of_set;
      step.places.insert(step.places.end(), static_cast<size_t>(set.columns), place);
    }
    PackedBatch batch = pack_task_sequences(*set.features, set.columns, units, numbers, batches.pin_memory, stride);
    batch.source = number_of_set;
    step.micro_batches.push_back(std::move(batch));
    step.capacity += batches.micro_batch_size * heaviest_;
  }
  step.end = position_;
  return step;
}

void RowLoader::restore(const SamplerState& state) {
  check_position(state, config_.batches.seed);
  begin();
  while (position_.consumed_sequences < state.consumed_sequences) plan_step();
  position_ = state;
}

}  // namespace bert
