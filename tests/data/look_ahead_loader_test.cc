#include "data/loader/look_ahead_loader.h"

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

void expect_same(const GlobalStep& a, const GlobalStep& b) {
  REQUIRE(a.micro_batches.size() == b.micro_batches.size());
  for (size_t i = 0; i < a.micro_batches.size(); ++i)
    CHECK(sequence_numbers(a.micro_batches[i]) == sequence_numbers(b.micro_batches[i]));
  CHECK((a.places == b.places));
  CHECK(a.end == b.end);
  CHECK(a.of_all_ranks == b.of_all_ranks);
  CHECK(a.damaged.sequences == b.damaged.sequences);
  CHECK(a.damaged.descriptions == b.damaged.descriptions);
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
    PretrainingDataLoader plain(opened, config);
    auto loader = std::make_unique<PretrainingDataLoader>(opened, config);
    const PretrainingDataLoader& inner = *loader;
    LookAheadLoader ahead(std::move(loader));
    CHECK(ahead.state() == plain.state());
    for (int i = 0; i < 8; ++i) {
      CAPTURE(rank, i);
      if (i % 3 != 0) REQUIRE(ahead.look_ahead(static_cast<size_t>(i % 3)));
      const GlobalStep want = plain.next_step();
      expect_same(ahead.next_step(), want);
      CHECK(ahead.state() == plain.state());
      CHECK(want.micro_batches.size() == (rank == 0 ? 2 : 1));
    }
    REQUIRE(ahead.look_ahead(2));
    CHECK(inner.state().consumed_steps == ahead.state().consumed_steps + 2);
    const SamplerState early{.seed = 3, .consumed_sequences = 6, .consumed_steps = 1};
    plain.restore(early);
    ahead.restore(early);
    expect_same(ahead.next_step(), plain.next_step());
  }
}

TEST_CASE("A damaged row of a step that is taken ahead is known before, and thrown in its turn", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  testing::write_made_up_shard(directory.path("0.shard"), 0, 30);
  testing::damage_row(directory.path("0.shard"), 13);  // in the third step
  LookAheadLoader ahead(std::make_unique<PretrainingDataLoader>(
      std::make_shared<PretrainingShards>(std::vector{directory.path()}), config_of(0)));
  CHECK(ahead.look_ahead(2));
  CHECK(ahead.next_step().end.consumed_steps == 1);
  CHECK_FALSE(ahead.look_ahead(2));
  CHECK_FALSE(ahead.look_ahead(1));  // it says so of every step that it has taken
  CHECK(ahead.failure() == nullptr);
  CHECK(ahead.next_step().end.consumed_steps == 2);
  REQUIRE(ahead.failure() != nullptr);
  for (int again = 0; again < 2; ++again) CHECK_THROWS_WITH(ahead.next_step(), Contains(": row 13"));
  CHECK(ahead.state() == SamplerState{.seed = 3, .consumed_sequences = 12, .consumed_steps = 2});
  CHECK_FALSE(ahead.look_ahead(2));
}

}  // namespace
}  // namespace bert
