#include "data/loader/dataloader.h"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <map>
#include <set>

#include "data/formats/shard.h"
#include "data/io/error.h"
#include "tests/support/example_data.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;
using testing::damage_row;
using testing::made_up_example;
using testing::TemporaryDirectory;
using testing::write_made_up_shard;

std::shared_ptr<const PretrainingShards> made_up_shards(const TemporaryDirectory& directory, int64_t count) {
  write_made_up_shard(directory.path("a.shard"), 0, count / 3);
  write_made_up_shard(directory.path("b.shard"), count / 3, count - count / 3);
  return std::make_shared<PretrainingShards>(std::vector{directory.path()});
}

std::vector<int64_t> values(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kLong);
  return {wide.const_data_ptr<int64_t>(), wide.const_data_ptr<int64_t>() + wide.numel()};
}

/// The example of each sequence number, taken from a batch. Fails if the parts of the batch contradict each other.
using Sequences = std::map<int64_t, PretrainingExample>;
void take_apart(const PackedBatch& batch, Sequences& sequences) {
  const auto ids = values(batch.input_ids), types = values(batch.token_type_ids),
             positions = values(batch.position_ids);
  const auto keys = values(batch.dropout_keys), ends = values(batch.cu_seqlens),
             masked = values(batch.masked_positions);
  const auto originals = values(batch.masked_ids), labels = values(batch.next_sentence_labels);
  REQUIRE(ends.front() == 0);
  REQUIRE(ends.back() == batch.num_tokens());
  REQUIRE(batch.first_sequence == keys.front() >> 16);
  REQUIRE(static_cast<int64_t>(labels.size()) == batch.num_sequences());
  int64_t longest = 0;
  size_t mask = 0;
  for (size_t i = 0; i + 1 < ends.size(); ++i) {
    PretrainingExample example;
    const int64_t sequence = keys.at(static_cast<size_t>(ends[i])) >> 16;
    example.segment_b_start = static_cast<int32_t>(ends[i + 1] - ends[i]);
    for (int64_t t = ends[i]; t < ends[i + 1]; ++t) {
      const auto at = static_cast<size_t>(t);
      REQUIRE(positions[at] == t - ends[i]);
      REQUIRE(keys[at] == (sequence << 16 | positions[at]));
      example.input_ids.push_back(static_cast<int32_t>(ids[at]));
      example.segment_b_start -= static_cast<int32_t>(types[at]);
      if (t > ends[i]) REQUIRE(types[at] >= types[at - 1]);
    }
    for (; mask < masked.size() && masked[mask] < ends[i + 1]; ++mask) {
      example.masked_positions.push_back(static_cast<int32_t>(masked[mask] - ends[i]));
      example.masked_ids.push_back(static_cast<int32_t>(originals[mask]));
    }
    example.is_random_next = labels[i] != 0;
    REQUIRE(sequences.emplace(sequence, example).second);
    longest = std::max(longest, ends[i + 1] - ends[i]);
  }
  REQUIRE(mask == masked.size());
  REQUIRE(batch.max_seqlen == longest);
}

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
  CHECK(undefined == 2);  // and masked_sources
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
          CHECK((loader.state() == SamplerState{.seed = 9, .consumed_sequences = step * global}));
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

/// The original ids of an example.
std::vector<int32_t> without_masks(PretrainingExample example) {
  for (size_t i = 0; i < example.masked_ids.size(); ++i) {
    example.input_ids[static_cast<size_t>(example.masked_positions[i])] = example.masked_ids[i];
  }
  return example.input_ids;
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
    REQUIRE(without_masks(sequence) == without_masks(made_up_example(example)));
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

TEST_CASE("Packed micro-batches keep to their budget and hold the sequences of the step", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  const auto shards = made_up_shards(directory, 500);
  constexpr int64_t kGlobal = 400, kBudget = 64, kSteps = 3;
  std::set<std::vector<int64_t>> want;
  for (const int64_t world_size : {1, 3, 8}) {
    CAPTURE(world_size);
    std::set<std::vector<int64_t>> micro_batches;
    int64_t tokens = 0, of_all_ranks = 0;
    for (int64_t rank = 0; rank < world_size; ++rank) {
      PretrainingDataLoader loader(shards, {.micro_batch_tokens = kBudget,
                                            .seed = 9,
                                            .rank = rank,
                                            .world_size = world_size,
                                            .global_batch_size = kGlobal});
      CHECK(loader.capacity() == kBudget);
      for (int64_t step = 0; step < kSteps; ++step) {
        CHECK(loader.state().consumed_sequences == step * kGlobal);
        do {
          const PackedBatch batch = loader.next();
          Sequences checked;
          take_apart(batch, checked);
          REQUIRE(batch.num_tokens() <= kBudget);
          for (const auto& [number, example] : checked) {
            REQUIRE(number / kGlobal == step);
            REQUIRE(example == made_up_example(loader.example_of_sequence(number)));
          }
          REQUIRE(micro_batches.insert(sequence_numbers(batch)).second);
          tokens += batch.num_tokens();
        } while (!loader.between_steps());
        if (rank == 0) of_all_ranks += loader.micro_batches_of_step();
      }
      CHECK(loader.state().consumed_sequences == kSteps * kGlobal);
    }
    size_t sequences = 0;
    for (const auto& numbers : micro_batches) sequences += numbers.size();
    CHECK(sequences == kSteps * kGlobal);
    CHECK(static_cast<int64_t>(micro_batches.size()) == of_all_ranks);
    CHECK(static_cast<double>(tokens) / static_cast<double>(of_all_ranks * kBudget) >
          0.97);  // no sequence fits into 4 tokens
    if (world_size == 1) want = micro_batches;
    CHECK((micro_batches == want));
  }
  CHECK_THROWS_WITH(PretrainingDataLoader(shards, {.micro_batch_tokens = 8, .global_batch_size = 16}),
                    Contains("longest row of 16 tokens"));
  CHECK_THROWS_WITH(PretrainingDataLoader(shards, {.micro_batch_tokens = 64}), Contains("divides a global_batch_size"));
}

TEST_CASE("A length bin fills micro-batches with sequences of similar length", "[unit][dataloader]") {
  const TemporaryDirectory directory;
  PretrainingDataLoader loader(made_up_shards(directory, 100),
                               {.micro_batch_size = 10, .length_bin_size = 4, .seed = 9, .global_batch_size = 100});
  std::set<int64_t> sequences;
  int64_t padded = 0, tokens = 0;
  do {
    const PackedBatch batch = loader.next();
    padded += batch.max_seqlen * batch.num_sequences();
    tokens += batch.num_tokens();
    for (const int64_t number : sequence_numbers(batch)) sequences.insert(number);
  } while (!loader.between_steps());
  CHECK(sequences.size() == 100);
  CHECK(static_cast<double>(tokens) / static_cast<double>(padded) > 0.8);  // 5 to 16 tokens; without bins 0.65
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
  CHECK(whole.state().consumed_sequences == far + 30);
  resumed.restore(whole.state());
  Sequences sequences;
  for (int i = 0; i < 20; ++i) {
    const PackedBatch batch = whole.next();
    CHECK(same(batch, resumed.next()));
    take_apart(batch, sequences);
  }
  for (const auto& [number, sequence] : sequences) {
    const ExampleOrder::Place place = resumed.place_of_sequence(number);
    CHECK(without_masks(sequence) == without_masks(made_up_example(place.example)));
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
      for (int epoch = 1; epoch <= 2; ++epoch) {
        do {
          take_apart(loader.next(), sequences);
        } while (!loader.between_steps());
        CHECK(loader.damaged().sequences == 5 * epoch);
        CHECK(loader.damaged().descriptions.size() == 5);
      }
      for (const auto& [number, sequence] : sequences) {
        CHECK(sequence == made_up_example(loader.example_of_sequence(number)));
      }
    }
    CHECK(sequences.size() == 60);
    PretrainingDataLoader order(shards, {.seed = 9});
    for (const auto& [number, sequence] : sequences) {
      const int64_t wanted = order.example_of_sequence(number);
      const bool damaged =
          std::find(damaged_examples.begin(), damaged_examples.end(), wanted) != damaged_examples.end();
      CHECK((sequence == made_up_example(wanted)) != damaged);
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
