#include "data/loader/look_ahead_loader.h"

#include <filesystem>
#include <memory>
#include <vector>

#include "data/io/error.h"
#include "data/loader/dataloader.h"
#include "tests/support/example_data.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;
using testing::TemporaryDirectory;

/// The sequence numbers of the next step of this rank, and what the loader says after each of its micro-batches.
struct Taken {
  std::vector<std::vector<int64_t>> micro_batches;
  std::vector<SamplerState> states;
  int64_t of_all_ranks = 0, damaged = 0;
  bool operator==(const Taken&) const = default;
};

Taken take(BatchLoader& loader) {
  Taken taken;
  do {
    taken.micro_batches.push_back(sequence_numbers(loader.next()));
    taken.states.push_back(loader.state());
  } while (!loader.between_steps());
  taken.of_all_ranks = loader.micro_batches_of_step();
  taken.damaged = loader.damaged().sequences;
  return taken;
}

/// Sequence number i has row i. Rank 0 has 2 of the 3 micro-batches of a step, rank 1 has one.
DataLoaderConfig config_of(int64_t rank) {
  return {.micro_batch_size = 2, .shuffle = false, .seed = 3, .rank = rank, .world_size = 2, .global_batch_size = 6};
}

TEST_CASE("A loader of which steps are taken ahead says and returns the same as without", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  testing::write_made_up_shard(directory.path("0.shard"), 0, 30);
  testing::damage_row(directory.path("0.shard"), 2);
  testing::damage_row(directory.path("0.shard"), 9);
  const auto opened = std::make_shared<PretrainingShards>(std::vector{directory.path()});
  for (const int64_t rank : {0, 1}) {
    DataLoaderConfig config = config_of(rank);
    config.replace_damaged_rows = true;
    PretrainingDataLoader plain(opened, config), inner(opened, config);
    LookAheadLoader ahead(inner);
    CHECK(ahead.state() == plain.state());
    for (int step = 0; step < 8; ++step) {
      CAPTURE(rank, step);
      if (step % 3 != 0) REQUIRE(ahead.look_ahead(static_cast<size_t>(step % 3)));
      const Taken want = take(plain), got = take(ahead);
      CHECK(got == want);
      CHECK(want.micro_batches.size() == (rank == 0 ? 2 : 1));
    }
    REQUIRE(ahead.look_ahead(2));
    CHECK(inner.state().consumed_steps == ahead.state().consumed_steps + 2);
    const SamplerState early{.seed = 3, .consumed_sequences = 6, .consumed_steps = 1};
    plain.restore(early);
    ahead.restore(early);
    CHECK(take(ahead) == take(plain));
  }
}

TEST_CASE("A damaged row of a step that is taken ahead is known before, and thrown in its turn", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  testing::write_made_up_shard(directory.path("0.shard"), 0, 30);
  testing::damage_row(directory.path("0.shard"), 13);  // in the third step
  PretrainingDataLoader inner(std::make_shared<PretrainingShards>(std::vector{directory.path()}), config_of(0));
  LookAheadLoader ahead(inner);
  CHECK(ahead.look_ahead(2));
  CHECK(take(ahead).states.back().consumed_steps == 1);
  CHECK_FALSE(ahead.look_ahead(2));
  CHECK_FALSE(ahead.look_ahead(1));  // it says so of every step that it has taken
  CHECK(ahead.failure() == nullptr);
  CHECK(take(ahead).states.back().consumed_steps == 2);
  REQUIRE(ahead.failure() != nullptr);
  for (int again = 0; again < 2; ++again) CHECK_THROWS_WITH(ahead.next(), Contains(": row 13"));
  CHECK(ahead.state() == SamplerState{.seed = 3, .consumed_sequences = 12, .consumed_steps = 2});
  CHECK_FALSE(ahead.look_ahead(2));
}

}  // namespace
}  // namespace bert
