// A tiny pre-trained model and a tiny task, for tests of fine-tuning.
#pragma once

#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "app/checkpoint/checkpoint.h"
#include "app/config/finetune_config.h"
#include "model/bert.h"
#include "model/state_dict.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

namespace bert::testing {

/// Writes a table of texts of five numbers and the label "small" where most are below 34, else "large".
inline void write_number_table(const std::string& path, int64_t rows, unsigned seed) {
  std::mt19937 random(seed);
  std::ofstream table(path);
  table << "sentence,kind\n";
  for (int64_t row = 0; row < rows; ++row) {
    const bool small = random() % 3 != 0;
    const auto length = 3 + 2 * static_cast<int64_t>(random() % 4);
    std::string text;
    for (int64_t i = 0; i < length; ++i) {
      const auto number = static_cast<int64_t>(random() % 29) + ((i % 3 == 2) == small ? 34 : 5);
      text += (i > 0 ? " " : "") + std::to_string(number);
    }
    table << text << "," << (small ? "small" : "large") << "\n";
  }
}

/// A configuration of twelve steps on the CPU, with model and table in `directory`.
inline FinetuneConfig tiny_task(const TemporaryDirectory& directory, const std::string& run) {
  const std::string model = directory.path("model");
  if (!std::filesystem::exists(model)) {
    const PretrainConfig config = tiny(directory, "unused");
    BertForPreTraining made(config.model);
    init_weights(*made, config.model, 5);
    Checkpoint checkpoint{.model = state_dict(*made), .optimizer = StateDict(), .state = {}, .tokenizer_model = {}};
    checkpoint.state.config = to_json(config);
    checkpoint.state.vocabulary = tokens();
    write_checkpoint(model, checkpoint);
    write_number_table(directory.path("train.csv"), 200, 1);
    write_number_table(directory.path("dev.csv"), 50, 2);
  }
  FinetuneConfig config;
  config.task = "text-classification";
  config.run_directory = directory.path(run);
  config.device = "cpu";
  config.initial_checkpoint = model;
  config.max_steps = 12;
  config.micro_batch_size = 4;
  config.global_batch_size = 8;
  config.checkpoint_every = 4;
  config.log_every = 2;
  config.optimizer.lr = 2e-3;
  config.data.directory = directory.path();
  config.data.task.max_seq_length = kLength;
  config.data.task.text_column = "sentence";
  config.data.task.label_column = "kind";
  return config;
}

}  // namespace bert::testing
