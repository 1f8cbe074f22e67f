#include "data/loader/look_ahead_loader.h"

#include <utility>

#include "data/io/error.h"

namespace bert {

void LookAheadLoader::take_step() {
  Step step{.begin = loader_.state()};
  try {
    do {
      step.micro_batches.push_back(loader_.next());
    } while (!loader_.between_steps());
  } catch (const DataError&) {
    step.failure = std::current_exception();
  }
  step.of_all_ranks = loader_.micro_batches_of_step();
  const DamagedRows& now = loader_.damaged();
  if (newest_damaged_ == nullptr || newest_damaged_->sequences != now.sequences ||
      newest_damaged_->descriptions.size() != now.descriptions.size()) {
    newest_damaged_ = std::make_shared<const DamagedRows>(now);
  }
  step.damaged = newest_damaged_;
  steps_.push_back(std::move(step));
}

bool LookAheadLoader::look_ahead(size_t count) {
  const auto readable = [this] { return steps_.empty() || steps_.back().failure == nullptr; };
  while (steps_.size() < count && readable()) take_step();
  return readable();
}

std::exception_ptr LookAheadLoader::failure() const { return steps_.empty() ? nullptr : steps_.front().failure; }

PackedBatch LookAheadLoader::next() {
  look_ahead(1);
  Step& step = steps_.front();
  if (step.failure) std::rethrow_exception(step.failure);
  damaged_ = step.damaged;
  of_all_ranks_ = step.of_all_ranks;
  PackedBatch batch = std::move(step.micro_batches.front());
  step.micro_batches.pop_front();
  between_steps_ = step.micro_batches.empty();
  if (between_steps_) steps_.pop_front();
  return batch;
}

SamplerState LookAheadLoader::state() const { return steps_.empty() ? loader_.state() : steps_.front().begin; }

void LookAheadLoader::restore(const SamplerState& state) {
  loader_.restore(state);
  steps_.clear();
  between_steps_ = true;
}

}  // namespace bert
