// A loader of which a run may take steps before their time, to know whether their rows can be read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <vector>

#include "cuda_ext/packed_batch.h"
#include "data/loader/batch_loader.h"

namespace bert {

/// Note [Steps taken ahead]
/// Ranks agree before a step that all of them can read its rows: a rank that fails within a step leaves the others in a
/// collective, and the step is lost. Their agreement is one step late, so that no rank waits for it. Therefore each rank
/// takes the micro-batches of the next step from its loader before it computes the present one. The loader has made
/// them by then: Note [Batches made ahead]. A rank holds the batches of up to two steps in memory of the CPU, beside
/// those that the loader makes.

/// Returns the batches of another loader. Position and counts are those after the batches that next() has returned,
/// however many steps are taken ahead.
class LookAheadLoader : public BatchLoader {
 public:
  /// `loader` has steps, must outlive this object, and is asked by nobody else while steps are taken ahead.
  explicit LookAheadLoader(BatchLoader& loader) : loader_(loader) {}

  /// Takes steps until `count` of them wait for next(), the one that next() has begun included. False if one of them
  /// cannot be read: next() throws its DataError in its turn, and no step after it is taken.
  bool look_ahead(size_t count);
  /// The DataError of the step that next() is to return; nullptr if that step is not taken, or can be read.
  [[nodiscard]] std::exception_ptr failure() const;

  PackedBatch next() override;
  [[nodiscard]] bool between_steps() const override { return between_steps_; }
  [[nodiscard]] int64_t micro_batches_of_step() const override { return of_all_ranks_; }
  [[nodiscard]] const std::vector<ExampleSource>& sources() const override { return loader_.sources(); }
  [[nodiscard]] int64_t capacity() const override { return loader_.capacity(); }
  [[nodiscard]] double seconds_waited() const override { return loader_.seconds_waited(); }
  [[nodiscard]] const DamagedRows& damaged() const override { return damaged_ ? *damaged_ : loader_.damaged(); }
  [[nodiscard]] SamplerState state() const override;
  void restore(const SamplerState& state) override;
  [[nodiscard]] ExampleOrder::Place place_of_sequence(int64_t sequence) const override {
    return loader_.place_of_sequence(sequence);
  }

 private:
  struct Step {
    SamplerState begin;
    std::deque<PackedBatch> micro_batches = {};
    int64_t of_all_ranks = 0;
    std::shared_ptr<const DamagedRows> damaged = nullptr;  // with those of the steps before; steps share an equal one
    std::exception_ptr failure = nullptr;
  };
  void take_step();

  BatchLoader& loader_;
  std::deque<Step> steps_;
  std::shared_ptr<const DamagedRows> damaged_,
      newest_damaged_;  // of the steps that next() has begun; of the last taken
  int64_t of_all_ranks_ = 0;
  bool between_steps_ = true;
};

}  // namespace bert
