// Steps that grow in a run; the numbers are worked out by hand.
#include "data/batch_sizes.h"

#include <vector>

#include "tests/testing.h"

namespace bert {
namespace {

using Pairs = std::vector<std::pair<int64_t, int64_t>>;

Pairs parts_of(const BatchSizes& sizes, int64_t steps) {
  Pairs pairs;
  for (const BatchSizes::Part& part : sizes.parts(steps)) pairs.emplace_back(part.size, part.steps);
  return pairs;
}

}  // namespace

TEST_CASE("Steps grow after steps or after sequences", "[unit][loader]") {
  const BatchSizes constant(8, {});
  CHECK(parts_of(constant, 5) == Pairs{{8, 5}});
  CHECK(constant.at(1000, 8000) == 8);

  const BatchSizes by_steps(8, {{.after_steps = 3, .size = 16}, {.after_steps = 5, .size = 64}});
  CHECK(by_steps.at(2, 16) == 8);
  CHECK(by_steps.at(3, 24) == 16);
  CHECK(by_steps.at(5, 56) == 64);
  CHECK(parts_of(by_steps, 7) == Pairs{{8, 3}, {16, 2}, {64, 2}});
  CHECK(parts_of(by_steps, 4) == Pairs{{8, 3}, {16, 1}});
  CHECK(by_steps.sequences(7) == 3 * 8 + 2 * 16 + 2 * 64);

  // 20 sequences are reached within the third step of 8, and 60 within the third of 16 after these 24.
  const BatchSizes by_sequences(8, {{.after_sequences = 20, .size = 16}, {.after_sequences = 60, .size = 64}});
  CHECK(by_sequences.at(2, 16) == 8);
  CHECK(by_sequences.at(3, 24) == 16);
  CHECK(by_sequences.at(5, 56) == 16);
  CHECK(by_sequences.at(6, 72) == 64);
  CHECK(parts_of(by_sequences, 8) == Pairs{{8, 3}, {16, 3}, {64, 2}});
}

TEST_CASE("A number of sequences takes the steps that contain it", "[unit][loader]") {
  const BatchSizes sizes(8, {{.after_steps = 3, .size = 16}});
  CHECK(sizes.steps_of(1, 100) == 1);
  CHECK(sizes.steps_of(16, 100) == 2);
  CHECK(sizes.steps_of(17, 100) == 3);
  CHECK(sizes.steps_of(24, 100) == 3);
  CHECK(sizes.steps_of(25, 100) == 4);
  CHECK(sizes.steps_of(57, 100) == 6);
  CHECK(sizes.steps_of(1e9, 100) == 100);
}

}  // namespace bert
