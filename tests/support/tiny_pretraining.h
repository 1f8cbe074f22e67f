// A tiny model, its vocabulary and its made-up text, for tests of the training loop.
#pragma once

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "app/config/pretrain_config.h"
#include "data/formats/shard.h"
#include "data/tokenizer/vocabulary.h"
#include "tests/testing.h"

namespace bert::testing {

inline constexpr int64_t kVocabulary = 64, kLength = 24;

inline std::vector<std::string> tokens() {
  std::vector<std::string> result = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  while (static_cast<int64_t>(result.size()) < kVocabulary) result.push_back(std::to_string(result.size()));
  return result;
}

/// Writes sequences in which every token is the previous one plus one: a language that a tiny model can learn. They have
/// pairs of segments unless `parameters` name an objective without.
inline void write_counting_shard(const std::string& path, int64_t rows, unsigned seed,
                                 std::vector<std::pair<std::string, std::string>> parameters = {},
                                 int32_t longest = 23) {
  constexpr int32_t kShortest = 12;
  std::mt19937 random(seed);
  ShardOptions options;
  options.vocab_size = kVocabulary;
  options.max_seq_length = kLength;
  options.vocabulary_checksum = Vocabulary(tokens()).hash();
  options.parameters = std::move(parameters);
  const bool pairs = has_pairs(objective_of(options.parameters));
  ShardWriter writer(path, options);
  for (int64_t row = 0; row < rows; ++row) {
    PretrainingExample example;
    const auto length = kShortest + static_cast<int32_t>(random() % static_cast<uint32_t>(longest - kShortest + 1));
    const auto first = static_cast<int32_t>(random() % 50);
    for (int32_t i = 0; i < length; ++i) example.input_ids.push_back(5 + (first + i) % 50);
    example.input_ids.front() = 2;
    example.input_ids[static_cast<size_t>(length / 2)] = example.input_ids.back() = 3;
    example.segment_b_start = pairs ? length / 2 + 1 : length;
    example.is_random_next = pairs && row % 2 == 1;
    for (const int32_t position : {2, length - 3}) {
      example.masked_positions.push_back(position);
      example.masked_ids.push_back(example.input_ids[static_cast<size_t>(position)]);
      example.input_ids[static_cast<size_t>(position)] = 4;
    }
    writer.add(example);
  }
  writer.commit();
}

/// A configuration for twelve steps on the CPU, with shards and vocabulary in `directory`.
inline PretrainConfig tiny(const TemporaryDirectory& directory, const std::string& run) {
  if (!std::filesystem::exists(directory.path("vocab.txt"))) {
    std::ofstream vocabulary(directory.path("vocab.txt"));
    for (const std::string& token : tokens()) vocabulary << token << "\n";
    write_counting_shard(directory.path("train.shard"), 300, 1);
    write_counting_shard(directory.path("validation.shard"), 40, 2);
  }
  PretrainConfig config;
  config.run_directory = directory.path(run);
  config.device = DeviceChoice::kCpu;
  config.max_steps = 12;
  config.micro_batch_size = 4;
  config.global_batch_size = 8;
  config.checkpoint_every = 4;
  config.evaluate_every = 0;
  config.log_every = 2;
  config.model = {.vocab_size = kVocabulary,
                  .hidden_size = 32,
                  .num_hidden_layers = 2,
                  .num_attention_heads = 2,
                  .intermediate_size = 64,
                  .max_position_embeddings = kLength};
  config.data.train = {directory.path("train.shard")};
  config.data.validation = {directory.path("validation.shard")};
  config.data.vocab_file = directory.path("vocab.txt");
  config.optimizer.type = OptimizerType::kAdamW;
  config.optimizer.lr = 2e-3;
  config.schedule.type = ScheduleType::kLinear;
  config.schedule.warmup_proportion = 0.1;
  return config;
}

}  // namespace bert::testing
