// The division of steps into micro-batches: packed to a number of tokens, or of similar lengths.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "data/formats/shard.h"
#include "data/loader/dataloader.h"
#include "tests/support/batch_sequences.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;
using testing::made_up_example;
using testing::made_up_shards;
using testing::places_of;
using testing::Sequences;
using testing::take_apart;
using testing::TemporaryDirectory;

TEST_CASE("Packed steps take the next sequences that fill their micro-batches, on any number of ranks",
          "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const auto shards = made_up_shards(directory, 500);
  constexpr int64_t kGlobal = 400, kBudget = 64, kSteps = 3;
  std::set<std::vector<int64_t>> want;
  std::vector<SamplerState> states;  // after each step
  for (const int64_t world_size : {1, 3, 8}) {
    CAPTURE(world_size);
    std::set<std::vector<int64_t>> micro_batches;
    std::vector<std::set<int64_t>> of_steps(kSteps);
    int64_t tokens = 0, of_all_ranks = 0;
    for (int64_t rank = 0; rank < world_size; ++rank) {
      PretrainingDataLoader loader(shards, {.micro_batch_tokens = kBudget,
                                            .seed = 9,
                                            .rank = rank,
                                            .world_size = world_size,
                                            .global_batch_size = kGlobal});
      for (size_t i = 0; i < kSteps; ++i) {
        const GlobalStep step = loader.next_step();
        Sequences checked;
        take_apart(step, checked);
        for (const auto& [number, place] : places_of(step)) {
          REQUIRE(of_steps[i].insert(number).second);
          REQUIRE(checked.at(number) == made_up_example(place.example));
        }
        for (const PackedBatch& batch : step.micro_batches) {
          REQUIRE(batch.num_tokens() <= kBudget);
          REQUIRE(micro_batches.insert(sequence_numbers(batch)).second);
        }
        CHECK(step.capacity == kBudget * std::ssize(step.micro_batches));
        tokens += step.num_tokens();
        if (rank == 0) of_all_ranks += step.of_all_ranks;
        if (states.size() == i) states.push_back(loader.state());
        REQUIRE(loader.state() == states[i]);
        REQUIRE(loader.state().consumed_steps == static_cast<int64_t>(i) + 1);
      }
    }
    int64_t before = 0;
    for (size_t step = 0; step < kSteps; ++step) {
      CHECK(*of_steps[step].begin() == before);
      CHECK(*of_steps[step].rbegin() == states[step].consumed_sequences - 1);
      CHECK(std::ssize(of_steps[step]) == states[step].consumed_sequences - before);
      CHECK(std::abs(std::ssize(of_steps[step]) - kGlobal) < kGlobal / 20);
      before = states[step].consumed_sequences;
    }
    CHECK(static_cast<int64_t>(micro_batches.size()) == of_all_ranks);
    CHECK(of_all_ranks ==
          kSteps * std::llround(static_cast<double>(kGlobal) * shards->mean_length() / static_cast<double>(kBudget)));
    // Sequences have 5 tokens at least, so a micro-batch of 64 may lack up to 4.
    CHECK(static_cast<double>(tokens) / static_cast<double>(of_all_ranks * kBudget) > 0.97);
    if (world_size == 1) want = micro_batches;
    CHECK((micro_batches == want));
  }
  // The steps after a position are those that follow from it, whatever came before.
  const DataLoaderConfig config{.micro_batch_tokens = kBudget, .seed = 9, .global_batch_size = kGlobal};
  PretrainingDataLoader resumed(shards, config);
  resumed.restore(states[1]);
  for (const PackedBatch& batch : resumed.next_step().micro_batches) CHECK(want.contains(sequence_numbers(batch)));
  CHECK(resumed.state() == states[2]);

  CHECK_THROWS_WITH(PretrainingDataLoader(shards, {.micro_batch_tokens = 8, .global_batch_size = 16}),
                    Contains("longest row of 16 tokens"));
  CHECK_THROWS_WITH(PretrainingDataLoader(shards, {.micro_batch_tokens = 64, .length_bin_size = 4}),
                    Contains("micro_batch_tokens or length_bin_size divides a step"));
  CHECK_THROWS_WITH(PretrainingDataLoader(shards, {.micro_batch_tokens = 512, .global_batch_size = 16}),
                    Contains("must be half full at least with the 16 sequences"));
  CHECK_THROWS_WITH(PretrainingDataLoader(shards, {.micro_batch_tokens = 64, .world_size = 9, .global_batch_size = 12}),
                    Contains("for each of the 9 ranks"));
}

TEST_CASE("More ranks than packed micro-batches share the same step", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const auto shards = made_up_shards(directory, 100);
  std::vector<std::set<int64_t>> of_ranks;
  for (const int64_t world_size : {1, 8}) {
    std::set<int64_t>& sequences = of_ranks.emplace_back();
    for (int64_t rank = 0; rank < world_size; ++rank) {
      PretrainingDataLoader loader(
          shards,
          {.micro_batch_tokens = 64, .seed = 9, .rank = rank, .world_size = world_size, .global_batch_size = 13});
      const GlobalStep step = loader.next_step();
      for (const auto& [number, place] : places_of(step)) REQUIRE(sequences.insert(number).second);
      CHECK(step.of_all_ranks == (world_size == 1 ? 2 : 8));
    }
  }
  CHECK(of_ranks[0] == of_ranks[1]);
}

TEST_CASE("The size of packed steps follows from the sources' lengths and weights", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const auto write = [&](const std::string& name, int64_t rows, size_t length) {
    ShardWriter writer(directory.path(name),
                       {.vocab_size = 1000, .max_seq_length = 64, .vocabulary_checksum = "", .parameters = {}});
    for (int64_t i = 0; i < rows; ++i) {
      PretrainingExample example;
      example.input_ids.assign(length, 7);
      example.segment_b_start = static_cast<int32_t>(length - 1);
      writer.add(example);
    }
    writer.commit();
  };
  write("a.shard", 5, 10);
  write("b.shard", 15, 10);
  write("c.shard", 60, 50);
  const PretrainingShards shards({directory.path("a.shard"), directory.path("b.shard"), directory.path("c.shard")});
  DataLoaderConfig config{.micro_batch_tokens = 100, .global_batch_size = 64};
  CHECK(packed_micro_batches(config, shards) == 26);  // 64 (20 * 10 + 60 * 50) / 80 / 100 = 25.6
  config.sources = {{"ab", 20, 3}, {"c", 60, 1}};
  CHECK(packed_micro_batches(config, shards) == 13);  // 64 (3 * 10 + 50) / 4 / 100 = 12.8
  config.sources = {{"a", 10, 3}, {"bc", 70, 1}};  // a source may end within a shard: (10 * 10 + 60 * 50) / 70 = 44.3
  CHECK(packed_micro_batches(config, shards) == 12);  // 64 (3 * 10 + 44.3) / 4 / 100 = 11.9
}

TEST_CASE("A length bin fills micro-batches with sequences of similar length", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  PretrainingDataLoader loader(made_up_shards(directory, 100),
                               {.micro_batch_size = 10, .length_bin_size = 4, .seed = 9, .global_batch_size = 100});
  std::set<int64_t> sequences;
  int64_t padded = 0, tokens = 0;
  for (const PackedBatch& batch : loader.next_step().micro_batches) {
    padded += batch.max_seqlen * batch.num_sequences();
    tokens += batch.num_tokens();
    for (const int64_t number : sequence_numbers(batch)) sequences.insert(number);
  }
  CHECK(sequences.size() == 100);
  CHECK(static_cast<double>(tokens) / static_cast<double>(padded) > 0.8);  // 5 to 16 tokens; without bins 0.65
}

}  // namespace
}  // namespace bert
