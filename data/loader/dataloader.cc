#include "data/loader/dataloader.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <functional>
#include <iterator>
#include <numeric>
#include <optional>

#include "data/formats/shard.h"
#include "data/io/error.h"
#include "data/loader/batch_plan.h"
#include "data/loader/prefetcher.h"
#include "data/loader/sequence_reader.h"

namespace bert {
namespace {

constexpr int64_t kMostLengthsRead = 4096;      // sequences of a step; at a page each, every rank reads 16 MiB
constexpr int64_t kBytesMadeAhead = 256 << 20;  // Note [Batches made ahead]

/// This rank's part of a step, by sequence numbers.
struct StepPlan {
  std::deque<std::vector<int64_t>> micro_batches;
  int64_t of_all_ranks = 0;  // micro-batches
  int64_t sequences = 0;     // of all ranks
  int64_t replaced = 0;      // of these, Note [Damaged rows]
};

/// A batch and its place in its step.
struct Item {
  PackedBatch batch;
  bool ends_step = true;
  int64_t of_all_ranks = 1;  // micro-batches of the step
  int64_t sequences = 0;     // of all ranks in the step, with a global batch
  int64_t replaced = 0;      // since the item before
  std::vector<std::string> damage;
};

void check_sources(const DataLoaderConfig& config, const PretrainingShards& shards) {
  int64_t examples = 0;
  for (const ExampleSource& source : config.sources) examples += source.examples;
  TORCH_CHECK(examples == shards.size(), "PretrainingDataLoader: the sources have ", examples,
              " examples, the shards have ", shards.size());
  TORCH_CHECK(config.sources.size() == 1 || config.repeat, "PretrainingDataLoader: a single pass has one source, got ",
              config.sources.size());
  TORCH_CHECK(
      !config.masking || static_cast<int64_t>(config.masking->vocabulary->continuations.size()) >= shards.vocab_size(),
      "PretrainingDataLoader: the shards have ids up to ", shards.vocab_size(),
      ", the vocabulary of the masks has fewer");
}

void check_division(const DataLoaderConfig& config, const PretrainingShards& shards) {
  if (config.micro_batch_tokens == 0 && config.length_bin_size == 0) return;
  TORCH_CHECK(config.global_batch_size > 0 && config.micro_batch_tokens >= 0 && config.length_bin_size >= 0 &&
                  (config.micro_batch_tokens == 0 || config.length_bin_size == 0),
              "PretrainingDataLoader: micro_batch_tokens or length_bin_size divides a global_batch_size, got ",
              config.micro_batch_tokens, ", ", config.length_bin_size, " and ", config.global_batch_size);
  if (config.micro_batch_tokens == 0) return;
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

/// The number of tokens of a sequence in the mean over a run: that of each source by the share of its weight. Within a
/// shard the mean counts, if a source ends there.
double mean_length(const std::vector<ExampleSource>& sources, const PretrainingShards& shards) {
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

}  // namespace

int64_t packed_micro_batches(const DataLoaderConfig& config, const PretrainingShards& shards) {
  const double length = config.sources.empty() ? shards.mean_length() : mean_length(config.sources, shards);
  return std::llround(static_cast<double>(config.global_batch_size) * length /
                      static_cast<double>(config.micro_batch_tokens));
}

std::vector<int64_t> sequence_numbers(const PackedBatch& batch) {
  std::vector<int64_t> numbers;
  const auto* starts = batch.cu_seqlens.const_data_ptr<int32_t>();
  const auto* keys = batch.dropout_keys.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < batch.num_sequences(); ++i) numbers.push_back(sequence_of_dropout_key(keys[starts[i]]));
  return numbers;
}

struct PretrainingDataLoader::Impl {
  std::shared_ptr<const PretrainingShards> shards;
  DataLoaderConfig config;
  int64_t start = 0;    // sequences that all ranks had consumed before the first of these batches
  int64_t batches = 0;  // batches returned since `start`
  // With a global batch: the run's finished steps, and the sequences of those since `start`.
  int64_t steps = 0, consumed_in_steps = 0;
  int64_t of_packed_step = 0;  // packed_micro_batches(), with micro_batch_tokens
  bool between_steps = true;
  int64_t of_all_ranks = 0;  // micro-batches of the last step
  double seconds_waited = 0;
  DamagedRows damaged;
  std::unique_ptr<SequenceReader> consumer_reader;  // of the consumer's thread
  std::unique_ptr<Prefetcher<Item>> prefetcher;

  [[nodiscard]] std::unique_ptr<SequenceReader> make_reader() const {
    return std::make_unique<SequenceReader>(shards, config.sources, config.seed, config.shuffle,
                                            config.replace_damaged_rows);
  }

  /// First sequence of this rank's batch `index`, without a global batch.
  [[nodiscard]] int64_t first_sequence(int64_t index) const {
    return start + (index * config.world_size + config.rank) * config.micro_batch_size;
  }

  /// Number of sequences in a single pass.
  [[nodiscard]] int64_t end() const {
    return config.max_sequences > 0 ? std::min(config.max_sequences, shards->size()) : shards->size();
  }

  [[nodiscard]] bool is_past_end(int64_t sequence) const { return !config.repeat && sequence >= end(); }

  [[nodiscard]] int64_t capacity() const {
    if (config.micro_batch_tokens > 0) return config.micro_batch_tokens;
    return config.micro_batch_size * shards->longest_row();
  }

  /// The number of this rank's batches in a step.
  [[nodiscard]] int64_t batches_per_step() const {
    const int64_t all = config.micro_batch_tokens > 0 ? std::max(of_packed_step, config.world_size)
                                                      : config.global_batch_size / config.micro_batch_size;
    return all / config.world_size + (config.rank < all % config.world_size ? 1 : 0);
  }

  /// Number of batches to make ahead: Note [Batches made ahead].
  [[nodiscard]] int64_t prefetch() const {
    if (config.prefetch > 0) return config.prefetch;
    constexpr int64_t kOfToken = 4 * sizeof(int64_t);  // bytes that a Collator makes of a token that is not masked
    const int64_t wanted = config.global_batch_size > 0 ? std::max<int64_t>(batches_per_step(), 1) : 4;
    return std::clamp<int64_t>(kBytesMadeAhead / std::max<int64_t>(1, capacity() * kOfToken), 1, wanted);
  }

  /// The micro-batches of the step that begins with sequence `begin`, dealt to the ranks.
  [[nodiscard]] StepPlan plan_step(SequenceReader& reader, int64_t begin) const {
    const bool exact = config.length_bin_size > 0 || config.replace_damaged_rows || packs() ||
                       config.global_batch_size <= kMostLengthsRead;
    StepPlan plan;
    std::vector<int64_t> weights;
    std::vector<bool> replaced;
    const int64_t room = of_packed_step * config.micro_batch_tokens;
    int64_t tokens = 0;
    while (packs() ? tokens < room : std::ssize(weights) < config.global_batch_size) {
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
    const auto micro_batches = divide(weights);
    std::vector<int64_t> sums;
    for (const auto& members : micro_batches) {
      int64_t& sum = sums.emplace_back(0);
      for (const int64_t member : members) sum += weights[static_cast<size_t>(member)];
      plan.sequences += std::ssize(members);
    }
    if (exact) plan.replaced = std::count(replaced.begin(), replaced.begin() + plan.sequences, true);
    plan.of_all_ranks = std::ssize(micro_batches);
    const auto of_ranks = deal_evenly(sums, config.world_size);
    for (const int64_t own : of_ranks[static_cast<size_t>(config.rank)]) {
      std::vector<int64_t>& sequences = plan.micro_batches.emplace_back(micro_batches[static_cast<size_t>(own)]);
      for (int64_t& sequence : sequences) sequence += begin;
    }
    return plan;
  }

  [[nodiscard]] bool packs() const { return config.micro_batch_tokens > 0; }

  [[nodiscard]] std::vector<std::vector<int64_t>> divide(const std::vector<int64_t>& weights) const {
    if (packs()) {
      auto packed = pack(weights, config.micro_batch_tokens, of_packed_step);
      split_bins(packed, weights, config.world_size);
      return packed;
    }
    if (config.length_bin_size > 0) return group_by_weight(weights, config.micro_batch_size, config.length_bin_size);
    return deal_evenly(weights, config.global_batch_size / config.micro_batch_size);
  }

  /// The sequence numbers of this rank's batch `index`, without a global batch. Empty after the last one.
  [[nodiscard]] std::vector<int64_t> consecutive(int64_t index) const {
    const int64_t first = first_sequence(index);
    int64_t count = config.micro_batch_size;
    if (!config.repeat) count = std::min(count, end() - first);
    std::vector<int64_t> sequences(static_cast<size_t>(std::max<int64_t>(count, 0)));
    std::iota(sequences.begin(), sequences.end(), first);
    return sequences;
  }

  /// A generator of this rank's batches. It shares no state with next(): the members that it reads do not change while
  /// it runs.
  [[nodiscard]] std::function<std::optional<Item>()> maker() const {
    return [this, reader = std::shared_ptr<SequenceReader>(make_reader()),
            collate = Collator(config.masking, {.seed = config.seed,
                                                .pairs = shards->any_pairs(),
                                                .name_sources = config.sources.size() > 1,
                                                .pin_memory = config.pin_memory}),
            plan = StepPlan(), step_start = start, index = int64_t{0},
            sequences = std::vector<NumberedSequence>()]() mutable -> std::optional<Item> {
      Item item;
      std::vector<int64_t> numbers;
      if (config.global_batch_size > 0) {
        if (plan.micro_batches.empty()) {
          plan = plan_step(*reader, step_start);
          step_start += plan.sequences;
          item.replaced = plan.replaced;
        }
        numbers = std::move(plan.micro_batches.front());
        plan.micro_batches.pop_front();
        item.ends_step = plan.micro_batches.empty();
        item.of_all_ranks = plan.of_all_ranks;
        item.sequences = plan.sequences;
      } else {
        numbers = consecutive(index++);
      }
      if (numbers.empty()) return std::nullopt;
      sequences.clear();
      for (const int64_t number : numbers) {
        sequences.push_back({number, reader->read(number)});
        if (config.global_batch_size == 0) item.replaced += sequences.back().data.replaced;
      }
      item.batch = collate(sequences);
      item.damage = reader->take_damage();
      return item;
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
  check_sources(config, *shards);
  check_division(config, *shards);
  if (config.global_batch_size != 0) {
    TORCH_CHECK(config.repeat, "PretrainingDataLoader: a single pass has no global_batch_size");
  }
  if (config.global_batch_size != 0 && config.micro_batch_tokens == 0) {
    TORCH_CHECK(config.global_batch_size % config.micro_batch_size == 0 &&
                    config.global_batch_size >= config.micro_batch_size * config.world_size,
                "PretrainingDataLoader: global_batch_size ", config.global_batch_size,
                " must be a multiple of micro_batch_size ", config.micro_batch_size, " and have one for each of the ",
                config.world_size, " ranks");
  }
  TORCH_CHECK(config.max_sequences >= 0 && (config.max_sequences == 0 || !config.repeat),
              "PretrainingDataLoader: max_sequences ends a single pass (repeat = false), got ", config.max_sequences);
  TORCH_CHECK(config.prefetch >= 0, "PretrainingDataLoader: prefetch must be at least 0, got ", config.prefetch);
  impl_ = std::make_unique<Impl>();
  impl_->shards = std::move(shards);
  impl_->config = std::move(config);
  if (impl_->packs()) impl_->of_packed_step = packed_micro_batches(impl_->config, *impl_->shards);
  impl_->consumer_reader = impl_->make_reader();
}

PretrainingDataLoader::~PretrainingDataLoader() = default;

PackedBatch PretrainingDataLoader::next() {
  TORCH_CHECK(!exhausted(),
              "PretrainingDataLoader: next() after the last batch of a single pass; ask exhausted() first");
  if (impl_->prefetcher == nullptr) {
    impl_->prefetcher = std::make_unique<Prefetcher<Item>>(impl_->maker(), static_cast<size_t>(impl_->prefetch()));
  }
  const auto before = std::chrono::steady_clock::now();
  std::optional<Item> item = impl_->prefetcher->next();
  impl_->seconds_waited += std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  TORCH_INTERNAL_ASSERT(item.has_value());
  ++impl_->batches;
  if (impl_->config.global_batch_size > 0 && item->ends_step) {
    ++impl_->steps;
    impl_->consumed_in_steps += item->sequences;
  }
  impl_->between_steps = item->ends_step;
  impl_->of_all_ranks = item->of_all_ranks;
  impl_->damaged.sequences += item->replaced;
  for (std::string& description : item->damage) impl_->damaged.descriptions.insert(std::move(description));
  return std::move(item->batch);
}

bool PretrainingDataLoader::between_steps() const { return impl_->between_steps; }

int64_t PretrainingDataLoader::micro_batches_of_step() const { return impl_->of_all_ranks; }

const std::vector<ExampleSource>& PretrainingDataLoader::sources() const { return impl_->config.sources; }

int64_t PretrainingDataLoader::capacity() const { return impl_->capacity(); }

double PretrainingDataLoader::seconds_waited() const { return impl_->seconds_waited; }

const DamagedRows& PretrainingDataLoader::damaged() const { return impl_->damaged; }

int64_t PretrainingDataLoader::prefetch() const { return impl_->prefetch(); }

bool PretrainingDataLoader::exhausted() const { return impl_->is_past_end(impl_->first_sequence(impl_->batches)); }

SamplerState PretrainingDataLoader::state() const {
  const DataLoaderConfig& config = impl_->config;
  int64_t consumed = impl_->start;
  consumed += config.global_batch_size > 0 ? impl_->consumed_in_steps
                                           : impl_->batches * config.world_size * config.micro_batch_size;
  if (!config.repeat) consumed = std::min(consumed, impl_->end());
  return {.seed = config.seed, .consumed_sequences = consumed, .consumed_steps = impl_->steps};
}

void PretrainingDataLoader::restore(const SamplerState& state) {
  if (state.seed != impl_->config.seed) {
    throw DataError("the sampler's state was saved with seed " + std::to_string(state.seed) +
                    ", the configuration has " + std::to_string(impl_->config.seed) +
                    ". Resume with the seed that the run began with.");
  }
  if (state.consumed_sequences < 0) {
    throw DataError("the sampler's state has " + std::to_string(state.consumed_sequences) + " consumed sequences");
  }
  impl_->prefetcher.reset();
  impl_->start = state.consumed_sequences;
  impl_->steps = state.consumed_steps;
  impl_->batches = impl_->consumed_in_steps = 0;
  impl_->between_steps = true;
}

ExampleOrder::Place PretrainingDataLoader::place_of_sequence(int64_t sequence) const {
  TORCH_CHECK(sequence >= 0, "PretrainingDataLoader: a sequence number is at least 0, got ", sequence);
  return impl_->config.replace_damaged_rows ? impl_->consumer_reader->read(sequence).place
                                            : impl_->consumer_reader->order()(sequence);
}

}  // namespace bert
