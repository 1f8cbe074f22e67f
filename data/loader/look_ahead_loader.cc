#include "data/loader/look_ahead_loader.h"

#include <utility>

#include "data/io/error.h"

namespace bert {

void LookAheadLoader::take_step() {
  try {
    steps_.push_back(loader_->next_step());
  } catch (const DataError&) {
    steps_.emplace_back().failure = std::current_exception();
  }
}

bool LookAheadLoader::look_ahead(size_t count) {
  const auto readable = [this] { return steps_.empty() || steps_.back().failure == nullptr; };
  while (steps_.size() < count && readable()) take_step();
  return readable();
}

GlobalStep LookAheadLoader::next_step() {
  look_ahead(1);
  if (steps_.front().failure) std::rethrow_exception(steps_.front().failure);
  GlobalStep step = std::move(steps_.front());
  steps_.pop_front();
  position_ = step.end;
  return step;
}

void LookAheadLoader::restore(const SamplerState& state) {
  loader_->restore(state);
  steps_.clear();
  position_ = state;
}

}  // namespace bert
