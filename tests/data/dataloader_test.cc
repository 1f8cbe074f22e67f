#include "data/loader/dataloader.h"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <map>
#include <set>

#include "data/formats/shard.h"
#include "data/io/error.h"
#include "data/loader/example_order.h"
#include "data/loader/single_pass_loader.h"
#include "tests/support/batch_sequences.h"
#include "tests/support/example_data.h"
#include "tests/support/mask_statistics.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;
using testing::damage_row;
using testing::made_up_example;
using testing::made_up_shards;
using testing::places_of;
using testing::restored;
using testing::Sequences;
using testing::take_apart;
using testing::TemporaryDirectory;
using testing::values;
using testing::write_made_up_shard;

bool same(const PackedBatch& a, const PackedBatch& b) {
  std::vector<at::Tensor> of_a;
  PackedBatch::visit_tensors(a, [&](const at::Tensor& tensor) { of_a.push_back(tensor); });
  bool result = a.max_seqlen == b.max_seqlen && a.first_sequence == b.first_sequence && a.source == b.source;
  auto other = of_a.begin();
  PackedBatch::visit_tensors(b, [&](const at::Tensor& tensor) {
    result = result && tensor.defined() == other->defined() && (!tensor.defined() || at::equal(tensor, *other));
    ++other;
  });
  return result;
}

TEST_CASE("A batch holds its examples end to end", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  PretrainingDataLoader loader(made_up_shards(directory, 30), {.micro_batch_size = 7, .shuffle = false});
  Sequences sequences;
  const PackedBatch batch = loader.next_step().micro_batches.front();
  take_apart(batch, sequences);
  CHECK(batch.input_ids.scalar_type() == at::kLong);
  CHECK(batch.cu_seqlens.scalar_type() == at::kInt);
  REQUIRE(sequences.size() == 7);
  for (int64_t i = 0; i < 7; ++i) CHECK(sequences.at(i) == made_up_example(i));
}

TEST_CASE("A batch lists all of its tensors and moves them together", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  PackedBatch batch =
      PretrainingDataLoader(made_up_shards(directory, 8), {.micro_batch_size = 4}).next_step().micro_batches.front();
  batch.next_sentence_labels = at::Tensor();
  const PackedBatch moved = batch.to(at::kMeta);
  size_t tensors = 0, undefined = 0;
  PackedBatch::visit_tensors(moved, [&](const at::Tensor& tensor) {
    ++tensors;
    if (!tensor.defined()) ++undefined;
    CHECK((!tensor.defined() || tensor.is_meta()));
  });
  CHECK(undefined == 5);  // and masked_sources, labels, counted and windows
  CHECK(tensors * sizeof(at::Tensor) + sizeof batch.max_seqlen + sizeof batch.first_sequence + sizeof batch.source +
            sizeof batch.padding ==
        sizeof(PackedBatch));
  CHECK(moved.input_ids.sizes() == batch.input_ids.sizes());
  CHECK(moved.max_seqlen == batch.max_seqlen);
  CHECK(moved.first_sequence == batch.first_sequence);
  CHECK(batch.input_ids.is_cpu());
}

TEST_CASE("Every epoch visits every example once, in another order", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const int64_t size = 60;
  PretrainingDataLoader loader(made_up_shards(directory, size), {.micro_batch_size = 8, .seed = 5});
  Sequences sequences;
  std::map<int64_t, ExampleOrder::Place> places;
  while (sequences.size() < 4 * size) {
    const GlobalStep step = loader.next_step();
    take_apart(step, sequences);
    places.merge(places_of(step));
  }
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    std::vector<int64_t> order;
    for (int64_t i = 0; i < size; ++i) {
      const int64_t sequence = epoch * size + i, index = places.at(sequence).example;
      REQUIRE(sequences.at(sequence) == made_up_example(index));
      order.push_back(index);
    }
    orders.insert(order);
    std::ranges::sort(order);
    for (int64_t i = 0; i < size; ++i) REQUIRE(order[static_cast<size_t>(i)] == i);
  }
  CHECK(orders.size() == 4);
}

TEST_CASE("The order of sequences depends on neither the size of micro-batches nor the number of ranks",
          "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const auto shards = made_up_shards(directory, 20);
  const auto first_sequences = [&](int64_t micro_batch_size, int64_t world_size) {
    Sequences sequences;
    for (int64_t rank = 0; rank < world_size; ++rank) {
      PretrainingDataLoader loader(shards, {.micro_batch_size = micro_batch_size,
                                            .seed = 9,
                                            .rank = rank,
                                            .world_size = world_size,
                                            .global_batch_size = 24});
      for (int step = 0; step < 2; ++step) take_apart(loader.next_step(), sequences);
      CHECK((loader.state() == SamplerState{.seed = 9, .consumed_sequences = 48, .consumed_steps = 2}));
    }
    REQUIRE(sequences.size() == 48);
    REQUIRE(sequences.rbegin()->first == 47);
    return sequences;
  };
  const Sequences want = first_sequences(1, 1);
  CHECK((first_sequences(8, 1) == want));
  CHECK((first_sequences(4, 3) == want));
  CHECK((first_sequences(3, 4) == want));
}

TEST_CASE("Batch i of a single pass goes to rank i % world_size", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const auto shards = made_up_shards(directory, 25);
  SinglePassLoader whole(shards, {.batch_size = 4});
  SinglePassLoader first(shards, {.batch_size = 4, .rank = 0, .world_size = 2});
  SinglePassLoader second(shards, {.batch_size = 4, .rank = 1, .world_size = 2});
  for (int i = 0; i < 7; ++i) CHECK(same(whole.next().value(), (i % 2 == 0 ? first : second).next().value()));
}

TEST_CASE("A step's micro-batches are a function of its sequences, dealt whole to any number of ranks",
          "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const auto shards = made_up_shards(directory, 100);
  const int64_t global = 24, micro = 3, steps = 5;
  using MicroBatches = std::map<int64_t, std::vector<int64_t>>;  // by their first sequence
  const auto run = [&](int64_t world_size, std::vector<std::vector<int64_t>>& tokens) {
    MicroBatches result;
    for (int64_t rank = 0; rank < world_size; ++rank) {
      PretrainingDataLoader loader(
          shards,
          {.micro_batch_size = micro, .seed = 9, .rank = rank, .world_size = world_size, .global_batch_size = global});
      for (int64_t step = 0; step < steps; ++step) {
        CHECK((loader.state() == SamplerState{.seed = 9, .consumed_sequences = step * global, .consumed_steps = step}));
        const GlobalStep made = loader.next_step();
        for (const PackedBatch& batch : made.micro_batches) {
          const std::vector<int64_t> sequences = sequence_numbers(batch);
          REQUIRE(static_cast<int64_t>(sequences.size()) == micro);
          REQUIRE(std::ranges::is_sorted(sequences));
          REQUIRE(result.emplace(sequences.front(), sequences).second);
        }
        Sequences checked;
        take_apart(made, checked);
        for (const auto& [sequence, place] : places_of(made)) {
          REQUIRE(sequence / global == step);
          REQUIRE(checked.at(sequence) == made_up_example(place.example));
        }
        tokens[static_cast<size_t>(step)].push_back(made.num_tokens());
        CHECK(made.of_all_ranks == 8);
        CHECK(made.capacity == std::ssize(made.micro_batches) * micro * shards->longest_row());
        CHECK(std::ssize(made.micro_batches) == 8 / world_size + (rank < 8 % world_size ? 1 : 0));
      }
      CHECK(loader.state().consumed_sequences == steps * global);
    }
    return result;
  };
  std::vector<std::vector<int64_t>> tokens(steps);
  const MicroBatches want = run(1, tokens);
  CHECK(want.size() == 8 * steps);
  for (const int64_t world_size : {2, 3, 4, 8}) {
    for (auto& of_step : tokens) of_step.clear();
    CHECK((run(world_size, tokens) == want));
    if (world_size > 4 || 8 % world_size != 0) continue;  // single or uneven micro-batches cannot be balanced
    for (const auto& of_step : tokens) {
      const auto [least, most] = std::minmax_element(of_step.begin(), of_step.end());
      CHECK(static_cast<double>(*most) / static_cast<double>(*least) < 1.02);
    }
  }
}

TEST_CASE("A restored loader continues with the same steps, from every point", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const auto shards = made_up_shards(directory, 10);
  const DataLoaderConfig config{.micro_batch_size = 3, .seed = 11, .global_batch_size = 6};
  PretrainingDataLoader loader(shards, config);
  std::vector<GlobalStep> steps;
  std::vector<SamplerState> states = {loader.state()};
  for (int i = 0; i < 8; ++i) {
    steps.push_back(loader.next_step());
    states.push_back(loader.state());
    CHECK(steps.back().end == states.back());
  }
  const auto expect_same = [](const GlobalStep& a, const GlobalStep& b) {
    REQUIRE(a.micro_batches.size() == 2);
    for (size_t i = 0; i < 2; ++i) REQUIRE(same(a.micro_batches[i], b.micro_batches[i]));
  };
  for (size_t point = 0; point < steps.size(); ++point) {
    PretrainingDataLoader fresh(shards, config);
    fresh.restore(states[point]);
    loader.restore(states[point]);  // a loader that has run goes back
    for (size_t i = point; i < std::min(point + 3, steps.size()); ++i) {
      expect_same(fresh.next_step(), steps[i]);
      expect_same(loader.next_step(), steps[i]);
      REQUIRE(fresh.state() == states[i + 1]);
    }
  }
}

TEST_CASE("A run may go on with other micro-batches and ranks, in the middle of an epoch", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const auto shards = made_up_shards(directory, 50);
  Sequences want, got;
  PretrainingDataLoader whole(shards, {.micro_batch_size = 1, .seed = 4, .global_batch_size = 30});
  for (int i = 0; i < 2; ++i) take_apart(whole.next_step(), want);
  PretrainingDataLoader before(shards, {.micro_batch_size = 5, .seed = 4, .global_batch_size = 30});
  take_apart(before.next_step(), got);
  for (int64_t rank = 0; rank < 3; ++rank) {
    PretrainingDataLoader after(
        shards, {.micro_batch_size = 2, .seed = 4, .rank = rank, .world_size = 3, .global_batch_size = 30});
    after.restore(before.state());
    take_apart(after.next_step(), got);
    CHECK(after.state().consumed_sequences == 60);
  }
  CHECK((got == want));
}

TEST_CASE("A single pass has max_sequences examples at most, whatever the number of ranks", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const auto shards = made_up_shards(directory, 23);
  for (const int64_t world_size : {1, 2, 3, 40}) {
    for (const int64_t most : {0, 1, 4, 10, 22, 23, 100}) {
      CAPTURE(world_size, most);
      Sequences sequences;
      for (int64_t rank = 0; rank < world_size; ++rank) {
        SinglePassLoader loader(shards,
                                {.batch_size = 4, .max_sequences = most, .rank = rank, .world_size = world_size});
        while (const std::optional<PackedBatch> batch = loader.next()) take_apart(*batch, sequences);
        CHECK_FALSE(loader.next());
      }
      const int64_t want = most == 0 ? 23 : std::min<int64_t>(most, 23);
      REQUIRE(static_cast<int64_t>(sequences.size()) == want);
      for (int64_t i = 0; i < want; ++i) REQUIRE(sequences.at(i) == made_up_example(i));
    }
  }
}

/// [PAD], [UNK], [CLS], [SEP] and [MASK] are 0 to 4; every third token continues a word.
DynamicMasking made_up_masking() {
  std::vector<std::string> tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  while (tokens.size() < 1004) {
    const std::string name = std::to_string(tokens.size());
    tokens.push_back(tokens.size() % 3 == 0 ? "##" + name : name);
  }
  return {.vocabulary = std::make_shared<const MaskingVocabulary>(WordPieceTokenizer(Vocabulary(tokens))),
          .config = {.masked_lm_prob = 0.3}};
}

TEST_CASE("Dynamic masks are a function of seed, epoch and example, and restore the text", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const int64_t size = 40, epochs = 3;
  const auto shards = made_up_shards(directory, size);
  const auto run = [&](int64_t micro_batch_size, int64_t world_size, uint64_t seed) {
    Sequences sequences;
    for (int64_t rank = 0; rank < world_size; ++rank) {
      PretrainingDataLoader loader(shards, {.micro_batch_size = micro_batch_size,
                                            .seed = seed,
                                            .rank = rank,
                                            .world_size = world_size,
                                            .global_batch_size = size,
                                            .masking = made_up_masking()});
      for (int64_t i = 0; i < epochs; ++i) take_apart(loader.next_step(), sequences);
    }
    return sequences;
  };
  const Sequences sequences = run(8, 1, 9);
  CHECK((run(5, 4, 9) == sequences));
  ExampleOrder order({{.name = "", .examples = size, .weight = 1}}, 9, /*shuffle=*/true);
  std::map<int64_t, std::set<std::vector<int32_t>>> positions;  // by example
  int64_t tokens = 0, masked = 0;
  for (const auto& [number, sequence] : sequences) {
    const int64_t example = order(number).example;
    REQUIRE(restored(sequence) == restored(made_up_example(example)));
    CHECK(sequence.segment_b_start == made_up_example(example).segment_b_start);
    positions[example].insert(sequence.masked_positions);
    tokens += static_cast<int64_t>(sequence.input_ids.size());
    masked += static_cast<int64_t>(sequence.masked_ids.size());
  }
  CHECK(static_cast<double>(masked) / static_cast<double>(tokens) == testing::Approx(0.3).epsilon(0.05));
  int64_t distinct = 0;
  for (const auto& [example, of_example] : positions) distinct += static_cast<int64_t>(of_example.size());
  CHECK(distinct > size * (epochs - 1));  // short sequences may draw the same masks twice
  CHECK((run(8, 1, 10) != sequences));
}

TEST_CASE("Sources are mixed by weight, whatever the number of ranks, and batches name them", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const auto shards = made_up_shards(directory, 30);  // 10 and 20 examples
  const std::vector<ExampleSource> sources = {{"a", 10, 1}, {"b", 20, 3}};
  std::vector<int64_t> masked(2), sequences(2);
  std::map<int64_t, int64_t> examples;
  for (int64_t rank = 0; rank < 2; ++rank) {
    PretrainingDataLoader loader(
        shards,
        {.micro_batch_size = 2, .seed = 7, .rank = rank, .world_size = 2, .global_batch_size = 16, .sources = sources});
    for (int i = 0; i < 10; ++i) {
      const GlobalStep step = loader.next_step();
      const auto places = places_of(step);
      for (const PackedBatch& batch : step.micro_batches) {
        const auto of_tokens = values(batch.masked_sources);
        std::vector<int64_t> want;
        Sequences checked;
        take_apart(batch, checked);
        for (const auto& [number, example] : checked) {
          const ExampleOrder::Place place = places.at(number);
          REQUIRE(example == made_up_example(place.example));
          REQUIRE(place.source == (place.example < 10 ? 0 : 1));
          REQUIRE(examples.emplace(number, place.example).second);
          ++sequences[static_cast<size_t>(place.source)];
          want.insert(want.end(), example.masked_ids.size(), place.source);
        }
        REQUIRE(of_tokens == want);
        for (const int64_t source : of_tokens) ++masked[static_cast<size_t>(source)];
      }
    }
  }
  CHECK(examples.size() == 160);
  CHECK(sequences == std::vector<int64_t>{40, 120});
  CHECK(masked[0] > 0);
  CHECK_THROWS_WITH(PretrainingDataLoader(shards, {.sources = {{"a", 10, 1}, {"b", 19, 3}}}),
                    Contains("the sources have 29 examples, the shards have 30"));
}

TEST_CASE("Batches of examples without pairs have no labels of pairs", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  for (const char* objective : {"nsp", "mlm", "sop"}) {
    CAPTURE(objective);
    const std::string path = directory.path(std::string(objective) + ".shard");
    ShardWriter writer(path, {.vocab_size = 1004,
                              .max_seq_length = 16,
                              .vocabulary_checksum = "",
                              .parameters = {{"objective", objective}}});
    for (int64_t i = 0; i < 20; ++i) {
      PretrainingExample example = made_up_example(i);
      if (std::string(objective) == "mlm") {
        example.segment_b_start = static_cast<int32_t>(example.input_ids.size());
        example.is_random_next = false;
      }
      writer.add(example);
    }
    writer.commit();
    PretrainingDataLoader loader(std::make_shared<PretrainingShards>(std::vector{path}), {.micro_batch_size = 4});
    const PackedBatch batch = loader.next_step().micro_batches.front();
    CHECK(batch.next_sentence_labels.defined() == (std::string(objective) != "mlm"));
    CHECK(batch.num_sequences() == 4);
  }
}

TEST_CASE("A run goes on at a position of billions at once, with sources, drawn masks and packing",
          "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const auto shards = made_up_shards(directory, 300);
  DataLoaderConfig config{.micro_batch_tokens = 48, .seed = 3, .global_batch_size = 30};
  config.sources = {{"a", 100, 0.7}, {"b", 200, 0.3}};
  config.masking = made_up_masking();
  const SourceMix mix(std::vector<double>{0.7, 0.3});
  const int64_t far = 30 * 100'000'000'001;
  PretrainingDataLoader whole(shards, config), resumed(shards, config);
  whole.restore({.seed = 3, .consumed_sequences = far});
  whole.next_step();
  CHECK(std::abs(whole.state().consumed_sequences - far - 30) < 6);
  resumed.restore(whole.state());
  for (int i = 0; i < 3; ++i) {
    const GlobalStep step = whole.next_step(), again = resumed.next_step();
    REQUIRE(step.micro_batches.size() == again.micro_batches.size());
    for (size_t k = 0; k < step.micro_batches.size(); ++k) CHECK(same(step.micro_batches[k], again.micro_batches[k]));
    Sequences sequences;
    take_apart(step, sequences);
    for (const auto& [number, place] : places_of(step)) {
      CHECK(restored(sequences.at(number)) == restored(made_up_example(place.example)));
      CHECK(place.epoch == mix(number).position / (place.source == 0 ? 100 : 200));
      CHECK(place.epoch > 20'000'000'000 / (place.source == 0 ? 1 : 5));
    }
  }
}

TEST_CASE("Ranks agree on what replaces damaged rows, and count the same", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const auto shards = made_up_shards(directory, 30);
  for (const int64_t row : {3, 4, 9}) damage_row(directory.path("a.shard"), row);
  for (const int64_t row : {0, 19}) damage_row(directory.path("b.shard"), row);
  const std::vector<int64_t> damaged_examples = {3, 4, 9, 10, 29};
  ExampleOrder order({{.name = "", .examples = 30, .weight = 1}}, 9, /*shuffle=*/true);
  const auto is_damaged = [&](int64_t number) {
    return std::ranges::find(damaged_examples, order(number).example) != damaged_examples.end();
  };
  const auto damaged_shards = std::make_shared<PretrainingShards>(std::vector{directory.path()});
  for (const int64_t tokens : {0, 64}) {
    Sequences sequences;
    for (int64_t rank = 0; rank < 2; ++rank) {
      PretrainingDataLoader loader(damaged_shards, {.micro_batch_size = 5,
                                                    .micro_batch_tokens = tokens,
                                                    .seed = 9,
                                                    .rank = rank,
                                                    .world_size = 2,
                                                    .global_batch_size = 30,
                                                    .replace_damaged_rows = true});
      DamagedRows damaged;
      for (int i = 0; i < 2; ++i) {
        const GlobalStep step = loader.next_step();
        damaged.add(step.damaged);
        Sequences checked;
        take_apart(step, checked);
        for (const auto& [number, place] : places_of(step)) CHECK(checked.at(number) == made_up_example(place.example));
        sequences.merge(checked);
        int64_t replaced = 0;
        for (int64_t number = 0; number < loader.state().consumed_sequences; ++number) replaced += is_damaged(number);
        CHECK(damaged.sequences == replaced);
      }
      CHECK(damaged.descriptions.size() == 5);
    }
    if (tokens == 0) CHECK(sequences.size() == 60);
    CHECK(std::ssize(sequences) == sequences.rbegin()->first + 1);
    for (const auto& [number, sequence] : sequences) {
      CHECK((sequence == made_up_example(order(number).example)) != is_damaged(number));
    }
  }
}

TEST_CASE("A damaged row reaches the caller of next_step(), after the steps before it", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("a.shard");
  write_made_up_shard(path, 0, 20);
  damage_row(path, 9);
  PretrainingDataLoader loader(std::make_shared<PretrainingShards>(std::vector{path}),
                               {.micro_batch_size = 3, .shuffle = false});
  for (int i = 0; i < 3; ++i) CHECK_NOTHROW(loader.next_step());
  CHECK_THROWS_WITH(loader.next_step(), Contains(path + ": byte ") && Contains(": row 9"));
  CHECK_THROWS_AS(loader.next_step(), DataError);
  CHECK(loader.state().consumed_sequences == 9);
}

TEST_CASE("A loader refuses states and settings that cannot be", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const auto shards = made_up_shards(directory, 9);
  PretrainingDataLoader loader(shards, {.seed = 1});
  CHECK_THROWS_WITH(loader.restore({.seed = 2, .consumed_sequences = 0}), Contains("seed 2") && Contains("has 1"));
  CHECK_THROWS_AS(loader.restore({.seed = 1, .consumed_sequences = -1}), DataError);
  CHECK_THROWS_WITH(PretrainingDataLoader(shards, {.micro_batch_size = 0}), Contains("micro_batch_size"));
  CHECK_THROWS_WITH(PretrainingDataLoader(shards, {.rank = 2, .world_size = 2}), Contains("rank 2 of 2"));
  CHECK_THROWS_WITH(PretrainingDataLoader(shards, {.micro_batch_size = 4, .global_batch_size = 6}),
                    Contains("global_batch_size 6 must be a multiple of micro_batch_size 4"));
  CHECK_THROWS_WITH(PretrainingDataLoader(shards, {.micro_batch_size = 4, .world_size = 3, .global_batch_size = 8}),
                    Contains("one for each of the 3 ranks"));
}

}  // namespace
}  // namespace bert
