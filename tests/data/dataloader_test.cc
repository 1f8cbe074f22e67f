#include "data/loader/dataloader.h"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <map>
#include <set>

#include "data/formats/shard.h"
#include "data/io/error.h"
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
using testing::restored;
using testing::Sequences;
using testing::take_apart;
using testing::TemporaryDirectory;
using testing::values;
using testing::write_made_up_shard;

bool same(const PackedBatch& a, const PackedBatch& b) {
  std::vector<at::Tensor> of_a;
  PackedBatch::visit_tensors(a, [&](const at::Tensor& tensor) { of_a.push_back(tensor); });
  bool result = a.max_seqlen == b.max_seqlen && a.first_sequence == b.first_sequence;
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
  const PackedBatch batch = loader.next();
  take_apart(batch, sequences);
  CHECK(batch.input_ids.scalar_type() == at::kLong);
  CHECK(batch.cu_seqlens.scalar_type() == at::kInt);
  REQUIRE(sequences.size() == 7);
  for (int64_t i = 0; i < 7; ++i) CHECK(sequences.at(i) == made_up_example(i));
}

TEST_CASE("A batch lists all of its tensors and moves them together", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  PackedBatch batch = PretrainingDataLoader(made_up_shards(directory, 8), {.micro_batch_size = 4}).next();
  batch.next_sentence_labels = at::Tensor();
  const PackedBatch moved = batch.to(at::kMeta);
  size_t tensors = 0, undefined = 0;
  PackedBatch::visit_tensors(moved, [&](const at::Tensor& tensor) {
    ++tensors;
    if (!tensor.defined()) ++undefined;
    CHECK((!tensor.defined() || tensor.is_meta()));
  });
  CHECK(undefined == 3);  // and masked_sources and labels
  CHECK(tensors * sizeof(at::Tensor) + sizeof batch.max_seqlen + sizeof batch.first_sequence == sizeof(PackedBatch));
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
  while (sequences.size() < 4 * size) take_apart(loader.next(), sequences);
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    std::vector<int64_t> order;
    for (int64_t i = 0; i < size; ++i) {
      const int64_t sequence = epoch * size + i, index = loader.example_of_sequence(sequence);
      REQUIRE(sequences.at(sequence) == made_up_example(index));
      order.push_back(index);
    }
    orders.insert(order);
    std::sort(order.begin(), order.end());
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
      PretrainingDataLoader loader(
          shards,
          {.micro_batch_size = micro_batch_size, .seed = 9, .rank = rank, .world_size = world_size, .prefetch = 2});
      for (int64_t i = 0; i < 48 / (micro_batch_size * world_size); ++i) take_apart(loader.next(), sequences);
      CHECK((loader.state() == SamplerState{.seed = 9, .consumed_sequences = 48}));
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

TEST_CASE("Micro-batch i goes to rank i % world_size", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const auto shards = made_up_shards(directory, 25);
  PretrainingDataLoader whole(shards, {.micro_batch_size = 4, .seed = 2});
  PretrainingDataLoader first(shards, {.micro_batch_size = 4, .seed = 2, .rank = 0, .world_size = 2});
  PretrainingDataLoader second(shards, {.micro_batch_size = 4, .seed = 2, .rank = 1, .world_size = 2});
  for (int i = 0; i < 12; ++i) CHECK(same(whole.next(), i % 2 == 0 ? first.next() : second.next()));
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
        int64_t& sum = tokens[static_cast<size_t>(step)].emplace_back(0);
        int64_t own = 0;
        do {
          ++own;
          CHECK(
              (loader.state() == SamplerState{.seed = 9, .consumed_sequences = step * global, .consumed_steps = step}));
          const PackedBatch batch = loader.next();
          Sequences checked;
          take_apart(batch, checked);
          const std::vector<int64_t> sequences = sequence_numbers(batch);
          REQUIRE(static_cast<int64_t>(sequences.size()) == micro);
          REQUIRE(std::is_sorted(sequences.begin(), sequences.end()));
          for (const int64_t sequence : sequences) {
            REQUIRE(sequence / global == step);
            REQUIRE(checked.at(sequence) == made_up_example(loader.example_of_sequence(sequence)));
          }
          REQUIRE(result.emplace(sequences.front(), sequences).second);
          sum += batch.num_tokens();
          CHECK(loader.micro_batches_of_step() == 8);
        } while (!loader.between_steps());
        CHECK(own == 8 / world_size + (rank < 8 % world_size ? 1 : 0));
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

TEST_CASE("A restored loader with a global batch continues with the same micro-batches", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const auto shards = made_up_shards(directory, 30);
  const DataLoaderConfig config{.micro_batch_size = 2, .seed = 3, .global_batch_size = 8};
  PretrainingDataLoader whole(shards, config), resumed(shards, config);
  for (int i = 0; i < 8; ++i) whole.next();
  resumed.restore(whole.state());
  CHECK(whole.state().consumed_sequences == 16);
  for (int i = 0; i < 8; ++i) CHECK(same(whole.next(), resumed.next()));
}

TEST_CASE("A restored loader continues with the same batches, from every point", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const auto shards = made_up_shards(directory, 10);
  const DataLoaderConfig config{.micro_batch_size = 3, .seed = 11};
  PretrainingDataLoader loader(shards, config);
  std::vector<PackedBatch> batches;
  std::vector<SamplerState> states = {loader.state()};
  for (int i = 0; i < 12; ++i) {
    batches.push_back(loader.next());
    states.push_back(loader.state());
  }
  for (size_t point = 0; point < batches.size(); ++point) {
    PretrainingDataLoader fresh(shards, config);
    fresh.restore(states[point]);
    loader.restore(states[point]);  // a loader that has run goes back
    for (size_t i = point; i < std::min(point + 3, batches.size()); ++i) {
      REQUIRE(same(fresh.next(), batches[i]));
      REQUIRE(same(loader.next(), batches[i]));
      REQUIRE(fresh.state() == states[i + 1]);
    }
  }
}

TEST_CASE("A run may go on with other micro-batches and ranks, in the middle of an epoch", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const auto shards = made_up_shards(directory, 50);
  Sequences want, got;
  PretrainingDataLoader whole(shards, {.micro_batch_size = 1, .seed = 4});
  for (int i = 0; i < 45; ++i) take_apart(whole.next(), want);
  PretrainingDataLoader before(shards, {.micro_batch_size = 5, .seed = 4});
  for (int i = 0; i < 3; ++i) take_apart(before.next(), got);
  for (int64_t rank = 0; rank < 3; ++rank) {
    PretrainingDataLoader after(shards, {.micro_batch_size = 2, .seed = 4, .rank = rank, .world_size = 3});
    after.restore(before.state());
    for (int i = 0; i < 5; ++i) take_apart(after.next(), got);
    CHECK(after.state().consumed_sequences == 45);
  }
  CHECK((got == want));
}

TEST_CASE("A single pass ends after every example, with a smaller last batch", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const auto shards = made_up_shards(directory, 23);
  for (const int64_t world_size : {1, 2, 3, 40}) {
    CAPTURE(world_size);
    Sequences sequences;
    for (int64_t rank = 0; rank < world_size; ++rank) {
      PretrainingDataLoader loader(
          shards, {.micro_batch_size = 4, .shuffle = false, .repeat = false, .rank = rank, .world_size = world_size});
      while (!loader.exhausted()) take_apart(loader.next(), sequences);
      CHECK(loader.state().consumed_sequences <= 23);
      CHECK_THROWS_WITH(loader.next(), Contains("exhausted"));
      loader.restore({});
      CHECK(loader.exhausted() == (4 * rank >= 23));
    }
    REQUIRE(sequences.size() == 23);
    for (int64_t i = 0; i < 23; ++i) REQUIRE(sequences.at(i) == made_up_example(i));
  }
}

TEST_CASE("A single pass ends after max_sequences, whatever the number of ranks", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const auto shards = made_up_shards(directory, 23);
  for (const int64_t world_size : {1, 2, 3, 40}) {
    for (const int64_t most : {1, 4, 10, 22, 23, 100}) {
      CAPTURE(world_size, most);
      Sequences sequences;
      for (int64_t rank = 0; rank < world_size; ++rank) {
        PretrainingDataLoader loader(shards, {.micro_batch_size = 4,
                                              .shuffle = false,
                                              .repeat = false,
                                              .max_sequences = most,
                                              .rank = rank,
                                              .world_size = world_size});
        while (!loader.exhausted()) take_apart(loader.next(), sequences);
        CHECK(loader.state().consumed_sequences <= most);
      }
      const int64_t want = std::min<int64_t>(most, 23);
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
                                            .masking = made_up_masking()});
      for (int64_t i = 0; i < epochs * size / (micro_batch_size * world_size); ++i)
        take_apart(loader.next(), sequences);
    }
    return sequences;
  };
  const Sequences sequences = run(8, 1, 9);
  CHECK((run(5, 4, 9) == sequences));
  PretrainingDataLoader order(shards, {.seed = 9});
  std::map<int64_t, std::set<std::vector<int32_t>>> positions;  // by example
  int64_t tokens = 0, masked = 0;
  for (const auto& [number, sequence] : sequences) {
    const int64_t example = order.example_of_sequence(number);
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
    for (int step = 0; step < 10; ++step) {
      do {
        const PackedBatch batch = loader.next();
        const auto of_tokens = values(batch.masked_sources);
        std::vector<int64_t> want;
        Sequences checked;
        take_apart(batch, checked);
        for (const auto& [number, example] : checked) {
          const ExampleOrder::Place place = loader.place_of_sequence(number);
          REQUIRE(example == made_up_example(place.example));
          REQUIRE(place.source == (place.example < 10 ? 0 : 1));
          REQUIRE(examples.emplace(number, place.example).second);
          ++sequences[static_cast<size_t>(place.source)];
          want.insert(want.end(), example.masked_ids.size(), place.source);
        }
        REQUIRE(of_tokens == want);
        for (const int64_t source : of_tokens) ++masked[static_cast<size_t>(source)];
      } while (!loader.between_steps());
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
    const PackedBatch batch = loader.next();
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
  do {
    whole.next();
  } while (!whole.between_steps());
  CHECK(std::abs(whole.state().consumed_sequences - far - 30) < 6);
  resumed.restore(whole.state());
  Sequences sequences;
  for (int i = 0; i < 20; ++i) {
    const PackedBatch batch = whole.next();
    CHECK(same(batch, resumed.next()));
    take_apart(batch, sequences);
  }
  for (const auto& [number, sequence] : sequences) {
    const ExampleOrder::Place place = resumed.place_of_sequence(number);
    CHECK(restored(sequence) == restored(made_up_example(place.example)));
    CHECK(place.epoch == mix(number).position / (place.source == 0 ? 100 : 200));
    CHECK(place.epoch > 20'000'000'000 / (place.source == 0 ? 1 : 5));
  }
}

TEST_CASE("Ranks agree on what replaces damaged rows, and count the same", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const auto shards = made_up_shards(directory, 30);
  for (const int64_t row : {3, 4, 9}) damage_row(directory.path("a.shard"), row);
  for (const int64_t row : {0, 19}) damage_row(directory.path("b.shard"), row);
  const std::vector<int64_t> damaged_examples = {3, 4, 9, 10, 29};
  PretrainingDataLoader order(shards, {.seed = 9});
  const auto is_damaged = [&](int64_t number) {
    return std::find(damaged_examples.begin(), damaged_examples.end(), order.example_of_sequence(number)) !=
           damaged_examples.end();
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
      for (int step = 1; step <= 2; ++step) {
        do {
          take_apart(loader.next(), sequences);
        } while (!loader.between_steps());
        int64_t replaced = 0;
        for (int64_t number = 0; number < loader.state().consumed_sequences; ++number) replaced += is_damaged(number);
        CHECK(loader.damaged().sequences == replaced);
      }
      CHECK(loader.damaged().descriptions.size() == 5);
      for (const auto& [number, sequence] : sequences) {
        CHECK(sequence == made_up_example(loader.example_of_sequence(number)));
      }
    }
    if (tokens == 0) CHECK(sequences.size() == 60);
    CHECK(std::ssize(sequences) == sequences.rbegin()->first + 1);
    for (const auto& [number, sequence] : sequences) {
      CHECK((sequence == made_up_example(order.example_of_sequence(number))) != is_damaged(number));
    }
  }
}

TEST_CASE("As many batches are made ahead as a step takes, within 256 MiB", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const auto shards = made_up_shards(directory, 9);
  const auto ahead = [&](const DataLoaderConfig& config) { return PretrainingDataLoader(shards, config).prefetch(); };
  CHECK(ahead({.micro_batch_size = 2}) == 4);
  CHECK(ahead({.micro_batch_size = 2, .global_batch_size = 64}) == 32);
  CHECK(ahead({.micro_batch_size = 2, .rank = 2, .world_size = 3, .global_batch_size = 64}) == 10);
  CHECK(ahead({.micro_batch_size = 2, .global_batch_size = 64, .prefetch = 3}) == 3);
  // A token takes 32 bytes, so a batch of 2^18 sequences takes 8 MiB for each token of the longest one.
  const int64_t large = 1 << 18, batches = 32 / shards->longest_row();
  CHECK(ahead({.micro_batch_size = large, .global_batch_size = 64 * large}) == std::max<int64_t>(1, batches));
}

TEST_CASE("A damaged row reaches the caller of next(), after the batches before it", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("a.shard");
  write_made_up_shard(path, 0, 20);
  damage_row(path, 9);
  PretrainingDataLoader loader(std::make_shared<PretrainingShards>(std::vector{path}),
                               {.micro_batch_size = 3, .shuffle = false});
  for (int i = 0; i < 3; ++i) CHECK_NOTHROW(loader.next());
  CHECK_THROWS_WITH(loader.next(), Contains(path + ": byte ") && Contains(": row 9"));
  CHECK_THROWS_AS(loader.next(), DataError);
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
  CHECK_THROWS_WITH(PretrainingDataLoader(shards, {.prefetch = -1}), Contains("prefetch"));
  CHECK_THROWS_WITH(PretrainingDataLoader(shards, {.max_sequences = 8}), Contains("max_sequences ends a single pass"));
  CHECK_THROWS_WITH(PretrainingDataLoader(shards, {.micro_batch_size = 4, .global_batch_size = 6}),
                    Contains("global_batch_size 6 must be a multiple of micro_batch_size 4"));
  CHECK_THROWS_WITH(PretrainingDataLoader(shards, {.micro_batch_size = 4, .world_size = 3, .global_batch_size = 8}),
                    Contains("one for each of the 3 ranks"));
  CHECK_THROWS_WITH(PretrainingDataLoader(shards, {.repeat = false, .global_batch_size = 8}), Contains("single pass"));
}

}  // namespace
}  // namespace bert
