// A tiny pre-trained model and a tiny task, for tests of fine-tuning.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/files.h"
#include "app/config/finetune_config.h"
#include "app/finetune/finetuning_run.h"
#include "data/io/files.h"
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
      if (i > 0) text += ' ';
      text += std::to_string(number);
    }
    table << text << "," << (small ? "small" : "large") << "\n";
  }
}

/// Writes a checkpoint of a BERT with new weights.
inline void write_tiny_model(const std::string& path, const PretrainConfig& config, uint64_t seed,
                             const std::vector<std::string>& vocabulary = tokens()) {
  BertForPreTraining made(config.model);
  init_weights(*made, config.model, seed);
  Checkpoint checkpoint{.model = state_dict(*made), .optimizer = StateDict(), .state = {}};
  checkpoint.state.config = to_json(config);
  checkpoint.state.model.vocabulary = vocabulary;
  write_checkpoint(path, checkpoint);
}

/// A configuration of twelve steps on the CPU, with model and table in `directory`.
inline FinetuneConfig tiny_task(const TemporaryDirectory& directory, const std::string& run) {
  const std::string model = directory.path("model");
  if (!std::filesystem::exists(model)) {
    write_tiny_model(model, tiny(directory, "unused"), 5);
    write_number_table(directory.path("train.csv"), 200, 1);
    write_number_table(directory.path("dev.csv"), 50, 2);
  }
  FinetuneConfig config;
  config.model = tiny(directory, "unused").model;  // a process that reads to_json() finds all fields given
  config.task = "text-classification";
  config.run_directory = directory.path(run);
  config.device = DeviceChoice::kCpu;
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

/// Writes the training and the development file of `task` to `directory`, with the same few examples in both. Returns the
/// paths of the two.
inline std::pair<std::string, std::string> write_tiny_examples(const std::string& task,
                                                               const TemporaryDirectory& directory) {
  std::string text, extension = ".csv";
  if (task == "squad-v1" || task == "squad-v2") {
    extension = ".json";
    text =
        R"({"data": [{"title": "t", "paragraphs": [{"context": "5 6 7 8 9 10 11 12 13 14 15 16", "qas": [
        {"id": "a", "question": "20 21", "answers": [{"text": "7 8", "answer_start": 4}]},
        {"id": "b", "question": "22", "answers": [{"text": "12", "answer_start": 17}]}]}]}]})";
  } else if (task == "ner") {
    extension = ".txt";
    for (int i = 0; i < 9; ++i) text += "5 O\n" + std::to_string(6 + i) + " B-X\n\n";
  } else if (task == "swag") {
    text = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n";
    for (int i = 0; i < 8; ++i)
      text += std::to_string(i) + ",v,1,5 6,5,6,gold,7,8,9,10," + std::to_string(i % 4) + "\n";
  } else if (task == "embedding") {
    text = "anchor,positive,score\n";
    for (int i = 5; i < 15; ++i) text += fmt::format("{} {},{} 40,{}\n", i, i + 1, i + 2, 0.05 * i);
  } else if (task == "multi-label-classification") {
    text = "text,label\n";
    for (int i = 5; i < 15; ++i) {
      const bool even = i % 2 == 0, three = i % 3 == 0;  // 5, 7, 11 and 13 have no label
      text += fmt::format("{} {},\"{}{}{}\"\n", i, i + 1, even ? "even" : "", even && three ? "," : "",
                          three ? "three" : "");
    }
  } else {
    text = "text,label\n";
    for (int i = 5; i < 15; ++i) {
      const std::string label = task == "text-regression" ? std::to_string(0.25 * i) : i % 2 == 0 ? "even" : "odd";
      text += std::to_string(i) + " " + std::to_string(i + 1) + "," + label + "\n";
    }
  }
  const std::pair paths = {directory.path(task + "-train" + extension), directory.path(task + "-dev" + extension)};
  for (const std::string& path : {paths.first, paths.second}) std::ofstream(path) << text;
  return paths;
}

/// A configuration of four steps on a few examples of `task`. The run directory has the name of the task.
inline FinetuneConfig tiny_task_of(const std::string& task, const TemporaryDirectory& directory) {
  FinetuneConfig config = tiny_task(directory, task);
  config.task = task;
  config.max_steps = 4;
  config.global_batch_size = config.micro_batch_size = 4;
  config.data.directory = "";
  config.data.task.text_column = "text";
  config.data.task.label_column = "label";
  config.data.task.doc_stride = 4;
  if (task == "embedding") {
    // The loss of the first set reads the score, the other one takes the other rows of a step for negatives.
    config.embedding.sets = {{.loss = EmbeddingLoss::kCoSent}, {.symmetric = true}};
    config.embedding.sampling = SetSampling::kRoundRobin;
  }
  std::tie(config.data.train_file, config.data.dev_file) = write_tiny_examples(task, directory);
  return config;
}

/// Configurations of six steps, two micro-batches each: every kind of task, and every precision that is not fp32. The run
/// directory has the names of both.
inline std::vector<FinetuneConfig> tiny_kinds(const TemporaryDirectory& directory) {
  const std::vector<std::pair<const char*, const char*>> kinds = {{"text-classification", "bf16"},
                                                                  {"ner", "fp16"},
                                                                  {"swag", "bf16-weights"},
                                                                  {"squad-v2", "bf16"},
                                                                  {"text-regression", "fp16-weights"},
                                                                  {"squad-v1", "fp16"},
                                                                  {"embedding", "bf16"},
                                                                  {"multi-label-classification", "fp8"}};
  std::vector<FinetuneConfig> configs;
  for (const auto& [task, precision] : kinds) {
    FinetuneConfig& config = configs.emplace_back(tiny_task_of(task, directory));
    config.precision = value_named<Precision>(precision).value();
    config.run_directory = directory.path(std::string(task) + "-" + precision);
    config.max_steps = 6;
    config.micro_batch_size = 2;
    config.checkpoint_every = 2;
    config.amp.init_scale = 1024;
    if (config.task == "multi-label-classification")
      config.data.task.search_label_threshold = ThresholdSearch::kPerLabel;
    if (config.task == "text-classification" || config.task == "multi-label-classification")
      config.class_weights = ClassWeights::kBalanced;
  }
  return configs;
}

/// The content of a file in the checkpoint of a step.
inline std::string checkpoint_file(const FinetuneConfig& config, int64_t step, const std::string& name) {
  return read_file(checkpoint_directory(config.run_directory, step) + "/" + name);
}

/// The message of the exception that fine-tuning throws; empty if it throws none.
template <class Error>
std::string finetuning_refusal(const FinetuneConfig& config) {
  return message_of<Error>([&] { finetune(config, false); });
}

}  // namespace bert::testing
