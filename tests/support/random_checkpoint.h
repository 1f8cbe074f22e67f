// A checkpoint of a small random model, its exports, and texts for it.
#pragma once

#include <string>
#include <vector>

#include "app/checkpoint/checkpoint.h"
#include "app/config/pretrain_config.h"
#include "app/verbs/verbs.h"
#include "model/bert.h"
#include "model/state_dict.h"
#include "tests/testing.h"

namespace bert::testing {

/// Writes a checkpoint of a random model with a vocabulary of a few words. Returns its path.
inline std::string write_random_checkpoint(const TemporaryDirectory& directory, bool with_averages = false,
                                           int64_t vocab_size = 10) {
  PretrainConfig config;
  config.run_directory = directory.path("run");
  config.data.train = {directory.path("train.shard")};
  config.data.vocab_file = directory.path("vocab.txt");
  config.model = {.vocab_size = vocab_size,
                  .hidden_size = 16,
                  .num_hidden_layers = 2,
                  .num_attention_heads = 2,
                  .intermediate_size = 32,
                  .max_position_embeddings = 12};
  BertForPreTraining model(config.model);
  init_weights(*model, config.model, 3);
  Checkpoint checkpoint{.model = state_dict(*model), .optimizer = StateDict(), .state = {}};
  if (with_averages) {
    for (const auto& item : checkpoint.model) checkpoint.optimizer.insert("ema." + item.key(), item.value() * 1.5);
  }
  checkpoint.state.step = 1;
  checkpoint.state.config = to_json(config);
  checkpoint.state.model.vocabulary = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "##s", "."};
  const std::string path = directory.path("checkpoint");
  write_checkpoint(path, checkpoint);
  return path;
}

inline int run_export(const std::string& checkpoint, const std::string& output,
                      const std::string& format = "torchscript", bool raw_weights = false) {
  std::vector<std::string> arguments = {"export", "--checkpoint", checkpoint, "--output", output, "--format", format};
  if (raw_weights) arguments.emplace_back("--raw-weights");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return export_command(static_cast<int>(argv.size()), argv.data());
}

/// Texts of 3 to 12 tokens; every third has two masks.
inline std::vector<std::string> texts_of_mixed_lengths() {
  const std::vector<std::string> words = {"the", "cat", "sat", ".", "cats"};
  std::vector<std::string> texts;
  for (size_t i = 0; i < 23; ++i) {
    std::string text = "[MASK]";
    for (size_t j = 0; j < i * 5 % 7; ++j) text += " " + words[(i + j) % words.size()];
    texts.push_back(i % 3 == 0 ? text + " [MASK]" : text);
  }
  return texts;
}

}  // namespace bert::testing
