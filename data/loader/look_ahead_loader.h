// A loader of which a run may take steps before their time, to know whether their rows can be read.
#pragma once

#include <cstddef>
#include <deque>
#include <exception>
#include <memory>

#include "data/loader/global_step.h"

namespace bert {

/// Note [Steps taken ahead]
/// Ranks agree before a step that all of them can read its rows: a rank that fails within a step leaves the others in a
/// collective, and the step is lost. Their agreement is one step late, so that no rank waits for it. Therefore each rank
/// takes the next step from its loader before it computes the present one. The loader has made it by then: Note [Steps
/// made ahead] in dataloader.h. A rank holds up to two steps in memory of the CPU, beside those that the loader makes.

/// Returns the steps of another loader. The position is that after the steps that next_step() has returned, however many
/// are taken ahead.
class LookAheadLoader : public StepLoader {
 public:
  explicit LookAheadLoader(std::unique_ptr<StepLoader> loader)
      : loader_(std::move(loader)), position_(loader_->state()) {}

  /// Takes steps until `count` of them wait for next_step(). False if one of them cannot be read: next_step() throws its
  /// DataError in its turn, and no step after it is taken.
  bool look_ahead(size_t count);
  /// The DataError of the step that next_step() is to return; nullptr if that step is not taken, or can be read.
  [[nodiscard]] std::exception_ptr failure() const { return steps_.empty() ? nullptr : steps_.front().failure; }

  GlobalStep next_step() override;
  [[nodiscard]] SamplerState state() const override { return position_; }
  void restore(const SamplerState& state) override;

 private:
  void take_step();

  std::unique_ptr<StepLoader> loader_;
  SamplerState position_;
  std::deque<GlobalStep> steps_;
};

}  // namespace bert
