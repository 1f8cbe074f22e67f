// The number of sequences of a step, which may grow in a run.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace bert {

/// A larger number of sequences from a place of the run on: after so many steps, or after so many sequences; the other
/// is 0.
struct BatchGrowth {
  int64_t after_steps = 0;     // tried steps, with those that changed nothing
  double after_sequences = 0;  // over all ranks
  int64_t size = 0;            // sequences
};

/// The number of sequences of each step. It follows from the step's position in the data alone: neither the ranks, the
/// micro-batches nor a resumption change it.
class BatchSizes {
 public:
  /// `growth` is in the order of its places.
  BatchSizes(int64_t first, std::vector<BatchGrowth> growth) : first_(first), growth_(std::move(growth)) {}

  /// The sequences of the step that begins after `steps` steps with `sequences` sequences.
  [[nodiscard]] int64_t at(int64_t steps, int64_t sequences) const;

  /// Steps of one size, one after another.
  struct Part {
    int64_t size = 0, steps = 0;
    [[nodiscard]] double sequences() const { return static_cast<double>(size) * static_cast<double>(steps); }
  };
  /// The first `steps` steps of a run.
  [[nodiscard]] std::vector<Part> parts(int64_t steps) const;
  /// The sequences of the first `steps` steps.
  [[nodiscard]] double sequences(int64_t steps) const;
  /// The least number of steps that have so many sequences together, but at least 1 and at most `most`.
  [[nodiscard]] int64_t steps_of(double sequences, int64_t most) const;

 private:
  int64_t first_;
  std::vector<BatchGrowth> growth_;
};

}  // namespace bert
