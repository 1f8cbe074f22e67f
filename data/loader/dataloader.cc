#include "data/loader/dataloader.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <numeric>
#include <optional>

#include "data/formats/shard.h"
#include "data/io/error.h"
#include "data/loader/batch_plan.h"
#include "data/loader/prefetcher.h"
#include "data/random/permutation.h"

namespace bert {
namespace {

constexpr int64_t kMostLengthsRead = 4096;      // sequences of a step; at a page each, every rank reads 16 MiB
constexpr int64_t kBytesMadeAhead = 256 << 20;  // Note [Batches made ahead]

/// Example index of any sequence number. Keeps the permutation of the last epoch asked for.
class ExampleOrder {
 public:
  ExampleOrder(int64_t size, const DataLoaderConfig& config)
      : size_(size), seed_(config.seed), shuffle_(config.shuffle), permutation_(size, config.seed, 0) {}

  int64_t operator()(int64_t sequence) {
    const int64_t epoch = sequence / size_;
    if (!shuffle_) return sequence % size_;
    if (epoch != epoch_) {
      permutation_ = Permutation(size_, seed_, static_cast<uint64_t>(epoch));
      epoch_ = epoch;
    }
    return permutation_(sequence % size_);
  }

 private:
  int64_t size_;
  uint64_t seed_;
  bool shuffle_;
  int64_t epoch_ = 0;
  Permutation permutation_;
};

/// Lays the rows end to end. `numbers` are their sequence numbers.
PackedBatch collate(const std::vector<ShardRow>& rows, const std::vector<int64_t>& numbers, bool pin_memory) {
  int64_t tokens = 0, masked = 0;
  for (const ShardRow& row : rows) {
    tokens += row.length;
    masked += row.num_masked;
  }
  const auto make = [&](int64_t count, at::ScalarType type) {
    return at::empty({count}, at::TensorOptions().dtype(type).pinned_memory(pin_memory));
  };
  const int64_t sequences = static_cast<int64_t>(rows.size());
  PackedBatch batch;
  batch.first_sequence = numbers.front();
  for (at::Tensor* tensor : {&batch.input_ids, &batch.token_type_ids, &batch.position_ids, &batch.dropout_keys}) {
    *tensor = make(tokens, at::kLong);
  }
  batch.masked_positions = make(masked, at::kLong);
  batch.masked_ids = make(masked, at::kLong);
  batch.next_sentence_labels = make(sequences, at::kLong);
  batch.cu_seqlens = make(sequences + 1, at::kInt);

  int64_t* input_ids = batch.input_ids.mutable_data_ptr<int64_t>();
  int64_t* token_type_ids = batch.token_type_ids.mutable_data_ptr<int64_t>();
  int64_t* position_ids = batch.position_ids.mutable_data_ptr<int64_t>();
  int64_t* dropout_keys = batch.dropout_keys.mutable_data_ptr<int64_t>();
  int64_t* masked_positions = batch.masked_positions.mutable_data_ptr<int64_t>();
  int64_t* masked_ids = batch.masked_ids.mutable_data_ptr<int64_t>();
  int64_t* labels = batch.next_sentence_labels.mutable_data_ptr<int64_t>();
  int32_t* cu_seqlens = batch.cu_seqlens.mutable_data_ptr<int32_t>();
  int64_t token = 0, mask = 0;
  cu_seqlens[0] = 0;
  for (int64_t i = 0; i < sequences; ++i) {
    const ShardRow& row = rows[static_cast<size_t>(i)];
    row.copy_input_ids(input_ids + token);
    for (int64_t position = 0; position < row.length; ++position) {
      token_type_ids[token + position] = position >= row.segment_b_start;
      position_ids[token + position] = position;
      dropout_keys[token + position] = dropout_key(numbers[static_cast<size_t>(i)], position);
    }
    row.copy_masked_ids(masked_ids + mask);
    for (int64_t j = 0; j < row.num_masked; ++j) masked_positions[mask + j] = token + row.masked_position(j);
    labels[i] = row.is_random_next;
    token += row.length;
    mask += row.num_masked;
    cu_seqlens[i + 1] = static_cast<int32_t>(token);
    batch.max_seqlen = std::max(batch.max_seqlen, row.length);
  }
  return batch;
}

}  // namespace

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
  std::unique_ptr<Prefetcher<PackedBatch>> prefetcher;

  /// First sequence of this rank's batch `index`, without a global batch.
  [[nodiscard]] int64_t first_sequence(int64_t index) const {
    return start + (index * config.world_size + config.rank) * config.micro_batch_size;
  }

  /// Number of sequences in a single pass.
  [[nodiscard]] int64_t end() const {
    return config.max_sequences > 0 ? std::min(config.max_sequences, shards->size()) : shards->size();
  }

  [[nodiscard]] bool is_past_end(int64_t sequence) const { return !config.repeat && sequence >= end(); }

  [[nodiscard]] int64_t batches_per_step() const {
    const int64_t all = config.global_batch_size / config.micro_batch_size;
    return all / config.world_size + (config.rank < all % config.world_size ? 1 : 0);
  }

  /// Number of batches to make ahead: Note [Batches made ahead].
  [[nodiscard]] int64_t prefetch() const {
    if (config.prefetch > 0) return config.prefetch;
    constexpr int64_t kOfToken = 4 * sizeof(int64_t);  // bytes that collate() makes of a token that is not masked
    const int64_t batch_bytes = std::max<int64_t>(1, config.micro_batch_size * shards->longest_row() * kOfToken);
    const int64_t wanted = config.global_batch_size > 0 ? batches_per_step() : 4;
    return std::clamp<int64_t>(kBytesMadeAhead / batch_bytes, 1, wanted);
  }

  /// A generator of the sequence numbers of this rank's micro-batches. Returns an empty list after the last one.
  [[nodiscard]] std::function<std::vector<int64_t>()> sampler() const {
    if (config.global_batch_size > 0) return balanced_sampler();
    return [this_batch = first_sequence(0), size = end(), settings = config]() mutable {
      int64_t count = settings.micro_batch_size;
      if (!settings.repeat) count = std::min(count, size - this_batch);
      std::vector<int64_t> sequences(static_cast<size_t>(std::max<int64_t>(count, 0)));
      std::iota(sequences.begin(), sequences.end(), this_batch);
      this_batch += settings.world_size * settings.micro_batch_size;
      return sequences;
    };
  }

  /// The same with a global batch: Note [Balanced micro-batches].
  [[nodiscard]] std::function<std::vector<int64_t>()> balanced_sampler() const {
    return [data = shards, settings = config, order = ExampleOrder(shards->size(), config), step_start = start,
            waiting = std::deque<std::vector<int64_t>>()]() mutable {
      if (waiting.empty()) {
        std::vector<int64_t> weights;
        for (int64_t i = 0; i < settings.global_batch_size; ++i) {
          const int64_t example = order(step_start + i);
          weights.push_back(settings.global_batch_size <= kMostLengthsRead ? data->row(example).length
                                                                           : data->bytes_of_row(example));
        }
        const auto micro_batches = deal_evenly(weights, settings.global_batch_size / settings.micro_batch_size);
        std::vector<int64_t> sums;
        for (const auto& members : micro_batches) {
          int64_t& sum = sums.emplace_back(0);
          for (const int64_t member : members) sum += weights[static_cast<size_t>(member)];
        }
        const auto of_ranks = deal_evenly(sums, settings.world_size);
        for (const int64_t own : of_ranks[static_cast<size_t>(settings.rank)]) {
          std::vector<int64_t>& sequences = waiting.emplace_back(micro_batches[static_cast<size_t>(own)]);
          for (int64_t& sequence : sequences) sequence += step_start;
        }
        step_start += settings.global_batch_size;
      }
      std::vector<int64_t> sequences = std::move(waiting.front());
      waiting.pop_front();
      return sequences;
    };
  }

  /// A generator of this rank's batches. It shares no state with next().
  [[nodiscard]] std::function<std::optional<PackedBatch>()> maker() const {
    return [data = shards, pin_memory = config.pin_memory, order = ExampleOrder(shards->size(), config),
            next_sequences = sampler(), rows = std::vector<ShardRow>()]() mutable -> std::optional<PackedBatch> {
      const std::vector<int64_t> sequences = next_sequences();
      if (sequences.empty()) return std::nullopt;
      rows.clear();
      for (const int64_t sequence : sequences) rows.push_back(data->row(order(sequence)));
      return collate(rows, sequences, pin_memory);
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
  if (config.global_batch_size != 0) {
    TORCH_CHECK(config.repeat, "PretrainingDataLoader: a single pass has no global_batch_size");
    TORCH_CHECK(config.global_batch_size % config.micro_batch_size == 0 &&
                    config.global_batch_size >= config.micro_batch_size * config.world_size,
                "PretrainingDataLoader: global_batch_size ", config.global_batch_size,
                " must be a multiple of micro_batch_size ", config.micro_batch_size, " and have one for each of the ",
                config.world_size, " ranks");
  }
  TORCH_CHECK(config.max_sequences >= 0 && (config.max_sequences == 0 || !config.repeat),
              "PretrainingDataLoader: max_sequences ends a single pass (repeat = false), got ", config.max_sequences);
  TORCH_CHECK(config.prefetch >= 0, "PretrainingDataLoader: prefetch must be at least 0, got ", config.prefetch);
  impl_ = std::make_unique<Impl>(Impl{.shards = std::move(shards), .config = config, .prefetcher = nullptr});
}

PretrainingDataLoader::~PretrainingDataLoader() = default;

PackedBatch PretrainingDataLoader::next() {
  TORCH_CHECK(!exhausted(),
              "PretrainingDataLoader: next() after the last batch of a single pass; ask exhausted() first");
  if (impl_->prefetcher == nullptr) {
    impl_->prefetcher =
        std::make_unique<Prefetcher<PackedBatch>>(impl_->maker(), static_cast<size_t>(impl_->prefetch()));
  }
  std::optional<PackedBatch> batch = impl_->prefetcher->next();
  TORCH_INTERNAL_ASSERT(batch.has_value());
  ++impl_->batches;
  return std::move(*batch);
}

int64_t PretrainingDataLoader::micro_batches_per_step() const { return impl_->batches_per_step(); }

int64_t PretrainingDataLoader::prefetch() const { return impl_->prefetch(); }

bool PretrainingDataLoader::exhausted() const { return impl_->is_past_end(impl_->first_sequence(impl_->batches)); }

SamplerState PretrainingDataLoader::state() const {
  const DataLoaderConfig& config = impl_->config;
  int64_t consumed = impl_->start;
  consumed += config.global_batch_size > 0 ? impl_->batches / impl_->batches_per_step() * config.global_batch_size
                                           : impl_->batches * config.world_size * config.micro_batch_size;
  if (!config.repeat) consumed = std::min(consumed, impl_->end());
  return {.seed = config.seed, .consumed_sequences = consumed};
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
  impl_->batches = 0;
}

int64_t PretrainingDataLoader::example_of_sequence(int64_t sequence) const {
  TORCH_CHECK(sequence >= 0, "PretrainingDataLoader: a sequence number is at least 0, got ", sequence);
  return ExampleOrder(impl_->shards->size(), impl_->config)(sequence);
}

}  // namespace bert
