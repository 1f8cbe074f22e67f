#include "data/loader/dataloader.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>

#include "data/formats/shard.h"
#include "data/loader/batch_plan.h"
#include "data/loader/prefetcher.h"
#include "data/loader/sequence_reader.h"

namespace bert {
namespace {

constexpr int64_t kMostLengthsRead = 4096;  // sequences of a step; at a page each, every rank reads 16 MiB

void check_sources(const DataLoaderConfig& config, const PretrainingShards& shards) {
  int64_t examples = 0;
  for (const ExampleSource& source : config.sources) examples += source.examples;
  TORCH_CHECK(examples == shards.size(), "PretrainingDataLoader: the sources have ", examples,
              " examples, the shards have ", shards.size());
  TORCH_CHECK(
      !config.masking || static_cast<int64_t>(config.masking->vocabulary->continuations.size()) >= shards.vocab_size(),
      "PretrainingDataLoader: the shards have ids up to ", shards.vocab_size(),
      ", the vocabulary of the masks has fewer");
}

void check_division(const DataLoaderConfig& config, const PretrainingShards& shards) {
  TORCH_CHECK(config.micro_batch_tokens >= 0 && config.length_bin_size >= 0 &&
                  (config.micro_batch_tokens == 0 || config.length_bin_size == 0),
              "PretrainingDataLoader: micro_batch_tokens or length_bin_size divides a step, got ",
              config.micro_batch_tokens, " and ", config.length_bin_size);
  if (config.micro_batch_tokens == 0) {
    const auto check = [&](int64_t sequences) {
      TORCH_CHECK(sequences % config.micro_batch_size == 0 && sequences >= config.micro_batch_size * config.world_size,
                  "PretrainingDataLoader: global_batch_size ", sequences, " must be a multiple of micro_batch_size ",
                  config.micro_batch_size, " and have one for each of the ", config.world_size, " ranks");
    };
    check(config.global_batch_size);
    for (const BatchGrowth& next : config.batch_growth) check(next.size);
    return;
  }
  TORCH_CHECK(config.micro_batch_tokens >= shards.longest_row(), "PretrainingDataLoader: micro_batch_tokens ",
              config.micro_batch_tokens, " must have room for the longest row of ", shards.longest_row(), " tokens");
  const int64_t micro_batches = packed_micro_batches(config, shards);
  TORCH_CHECK(micro_batches > 0, "PretrainingDataLoader: micro_batch_tokens ", config.micro_batch_tokens,
              " must be half full at least with the ", config.global_batch_size, " sequences of a step");
  TORCH_CHECK(micro_batches * (config.micro_batch_tokens / shards.longest_row()) >= config.world_size,
              "PretrainingDataLoader: a step of ", micro_batches, " micro-batches of ", config.micro_batch_tokens,
              " tokens must have room for the longest row of ", shards.longest_row(), " tokens for each of the ",
              config.world_size, " ranks");
}

/// The micro-batches of a step of so many sequences, which have `length` tokens in the mean.
int64_t packed_of(int64_t sequences, double length, int64_t tokens) {
  return std::llround(static_cast<double>(sequences) * length / static_cast<double>(tokens));
}

}  // namespace

double mean_length(const std::vector<ExampleSource>& sources, const PretrainingShards& shards) {
  if (sources.empty()) return shards.mean_length();
  double mean = 0, weights = 0;
  auto shard = shards.shards().begin();
  int64_t used = 0;  // examples of the shard
  for (const ExampleSource& source : sources) {
    double tokens = 0;
    for (int64_t left = source.examples; left > 0;) {
      const ShardManifest& manifest = (*shard)->manifest();
      const int64_t taken = std::min(left, manifest.rows - used);
      if (taken > 0)
        tokens +=
            static_cast<double>(manifest.tokens) * static_cast<double>(taken) / static_cast<double>(manifest.rows);
      left -= taken;
      used += taken;
      if (used == manifest.rows) {
        ++shard;
        used = 0;
      }
    }
    mean += source.weight * tokens / static_cast<double>(source.examples);
    weights += source.weight;
  }
  return mean / weights;
}

int64_t packed_micro_batches(const DataLoaderConfig& config, const PretrainingShards& shards) {
  return packed_of(config.global_batch_size, mean_length(config.sources, shards), config.micro_batch_tokens);
}

struct PretrainingDataLoader::Impl {
  std::shared_ptr<const PretrainingShards> shards;
  DataLoaderConfig config;
  BatchSizes sizes;
  double length = 0;      // of a sequence in the mean
  SamplerState position;  // after the steps that were returned
  std::unique_ptr<Prefetcher<GlobalStep>> prefetcher;

  [[nodiscard]] bool packs() const { return config.micro_batch_tokens > 0; }

  /// Those of all ranks in a step of so many sequences; with micro_batch_tokens at most, unless there are more ranks.
  [[nodiscard]] int64_t micro_batches_of(int64_t sequences) const {
    return packs() ? packed_of(sequences, length, config.micro_batch_tokens) : sequences / config.micro_batch_size;
  }

  [[nodiscard]] std::vector<std::vector<int64_t>> divide(const std::vector<int64_t>& weights,
                                                         int64_t micro_batches) const {
    if (packs()) {
      auto packed = pack(weights, config.micro_batch_tokens, micro_batches);
      split_bins(packed, weights, config.world_size);
      return packed;
    }
    if (config.length_bin_size > 0) return group_by_weight(weights, config.micro_batch_size, config.length_bin_size);
    return deal_evenly(weights, micro_batches);
  }

  /// Decides on the step that begins at `from`: sets the counts of `step`, and returns the sequence numbers of this
  /// rank's micro-batches.
  [[nodiscard]] std::vector<std::vector<int64_t>> plan(SequenceReader& reader, const SamplerState& from,
                                                       GlobalStep& step) const {
    const int64_t begin = from.consumed_sequences, size = sizes.at(from.consumed_steps, begin);
    const int64_t micro_batches = micro_batches_of(size);
    const bool exact = config.length_bin_size > 0 || config.replace_damaged_rows || packs() || size <= kMostLengthsRead;
    std::vector<int64_t> weights;
    std::vector<bool> replaced;
    const int64_t room = micro_batches * config.micro_batch_tokens;
    int64_t tokens = 0;
    while (packs() ? tokens < room : std::ssize(weights) < size) {
      const int64_t number = begin + std::ssize(weights);
      if (exact) {
        const SequenceReader::Sequence sequence = reader.read(number);
        weights.push_back(sequence.row.length);
        replaced.push_back(sequence.replaced);
      } else {
        weights.push_back(shards->bytes_of_row(reader.order()(number).example));
      }
      tokens += weights.back();
    }
    const auto divided = divide(weights, micro_batches);
    std::vector<int64_t> sums;
    int64_t sequences = 0;
    for (const auto& members : divided) {
      int64_t& sum = sums.emplace_back(0);
      for (const int64_t member : members) sum += weights[static_cast<size_t>(member)];
      sequences += std::ssize(members);
    }
    if (exact) step.damaged.sequences = std::count(replaced.begin(), replaced.begin() + sequences, true);
    step.of_all_ranks = std::ssize(divided);
    step.end.consumed_sequences = begin + sequences;
    std::vector<std::vector<int64_t>> own;
    const auto of_ranks = deal_evenly(sums, config.world_size);
    for (const int64_t index : of_ranks[static_cast<size_t>(config.rank)]) {
      own.push_back(divided[static_cast<size_t>(index)]);
      for (int64_t& number : own.back()) number += begin;
    }
    return own;
  }

  [[nodiscard]] GlobalStep make_step(SequenceReader& reader, Collator& collate, const SamplerState& begin) const {
    GlobalStep step;
    step.end = {.seed = config.seed, .consumed_steps = begin.consumed_steps + 1};
    std::vector<NumberedSequence> sequences;
    for (const std::vector<int64_t>& numbers : plan(reader, begin, step)) {
      sequences.clear();
      for (const int64_t number : numbers) {
        sequences.push_back({number, reader.read(number)});
        step.places.push_back(sequences.back().data.place);
      }
      step.micro_batches.push_back(collate(sequences));
      step.capacity += packs() ? config.micro_batch_tokens : config.micro_batch_size * shards->longest_row();
    }
    for (std::string& description : reader.take_damage()) step.damaged.descriptions.insert(std::move(description));
    return step;
  }

  /// A generator of the steps from `position` on. It shares no state with next_step(): the members that it reads do not
  /// change while it runs.
  [[nodiscard]] std::function<std::optional<GlobalStep>()> maker() const {
    return [this, begin = position,
            reader = std::make_shared<SequenceReader>(shards, config.sources, config.seed, config.shuffle,
                                                      config.replace_damaged_rows),
            collate = Collator(config.masking, {.seed = config.seed,
                                                .pairs = shards->any_pairs(),
                                                .name_sources = config.sources.size() > 1,
                                                .pin_memory = config.pin_memory,
                                                .tokens = config.micro_batch_tokens,
                                                .longest_row = shards->longest_row()})]() mutable {
      std::optional<GlobalStep> step = make_step(*reader, collate, begin);
      begin = step->end;
      return step;
    };
  }
};

PretrainingDataLoader::PretrainingDataLoader(std::shared_ptr<const PretrainingShards> shards, DataLoaderConfig config) {
  TORCH_CHECK(shards != nullptr, "PretrainingDataLoader: shards must not be null");
  TORCH_CHECK(config.micro_batch_size >= 1, "PretrainingDataLoader: micro_batch_size must be at least 1, got ",
              config.micro_batch_size);
  TORCH_CHECK(config.world_size >= 1 && config.rank >= 0 && config.rank < config.world_size,
              "PretrainingDataLoader: rank must be 0 to world_size - 1, got rank ", config.rank, " of ",
              config.world_size);
  if (config.sources.empty()) config.sources = {{.name = "", .examples = shards->size(), .weight = 1}};
  if (config.global_batch_size == 0) config.global_batch_size = config.micro_batch_size * config.world_size;
  check_sources(config, *shards);
  check_division(config, *shards);
  const SamplerState begin{.seed = config.seed};
  const double length = mean_length(config.sources, *shards);
  BatchSizes sizes(config.global_batch_size, config.batch_growth);
  impl_ = std::make_unique<Impl>(Impl{.shards = std::move(shards),
                                      .config = std::move(config),
                                      .sizes = std::move(sizes),
                                      .length = length,
                                      .position = begin,
                                      .prefetcher = nullptr});
}

PretrainingDataLoader::~PretrainingDataLoader() = default;

GlobalStep PretrainingDataLoader::next_step() {
  const auto before = std::chrono::steady_clock::now();
  if (impl_->prefetcher == nullptr)
    impl_->prefetcher = std::make_unique<Prefetcher<GlobalStep>>(impl_->maker(), /*depth=*/1);
  GlobalStep step = impl_->prefetcher->next().value();
  step.seconds_waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  impl_->position = step.end;
  return step;
}

SamplerState PretrainingDataLoader::state() const { return impl_->position; }

void PretrainingDataLoader::restore(const SamplerState& state) {
  check_position(state, impl_->config.seed);
  impl_->prefetcher.reset();
  impl_->position = state;
}

}  // namespace bert
