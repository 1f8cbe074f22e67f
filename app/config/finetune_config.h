// The configuration of a fine-tuning run: its fields, how they are loaded, and the comparison on resume.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "app/config/embedding_config.h"
#include "app/config/model_description.h"
#include "app/config/rerank_config.h"
#include "app/config/run_config.h"
#include "data/config.h"

namespace bert {

/// The data of a task. The fields of `task` and `tokenizer` are fields of `data`, not of objects in it.
struct TaskFilesConfig {
  std::string directory;
  std::string train_file, dev_file, test_file;
  std::string vocab_file;
  TaskDataConfig task;
  TokenizerConfig tokenizer;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("directory", self.directory, "directory of the task's files, under their official names", kPath);
    visit("train_file", self.train_file, "training file, in place of the one in directory", kPath);
    visit("dev_file", self.dev_file, "development file, in place of those in directory", kPath);
    visit("test_file", self.test_file, "file to predict, in place of those in directory; may lack labels", kPath);
    visit("vocab_file", self.vocab_file,
          "vocab.txt or tokenizer.json in place of the vocabulary of initial_checkpoint: initial_vocabulary says where "
          "the rows of its tokens come from",
          kPath);
    TaskDataConfig::visit_fields(self.task, visit);
    TokenizerConfig::visit_fields(self.tokenizer, visit);
  }
};

/// Training on the outputs of a teacher beside the labels: Note [Losses of distillation] in
/// app/finetune/distillation_losses.h.
struct DistillationConfig {
  std::string teacher;
  double labels_weight = 1;
  double logits_weight = 1;
  double temperature = 1;
  double hidden_weight = 1;
  double attention_weight = 1;

  static constexpr double kMostWeight = 1e4;

  /// True if a loss reads the hidden states of layers, or query, key and value.
  [[nodiscard]] bool has_inner_losses() const { return hidden_weight > 0 || attention_weight > 0; }

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("teacher", self.teacher,
          "run, checkpoint, export or model of another program, fine-tuned for the same task, from which the model "
          "learns beside the labels; empty = none",
          kPath);
    visit("labels_weight", self.labels_weight, "weight of the task's own loss", 0.0, kMostWeight);
    visit("logits_weight", self.logits_weight,
          "weight of the KL divergence of the model's probabilities from the teacher's, times temperature squared; of "
          "numbers the mean squared difference",
          0.0, kMostWeight);
    visit("temperature", self.temperature, "divides the logits of both before their softmax", 0.01, 1000.0);
    visit("hidden_weight", self.hidden_weight, "weight of the difference of the hidden states of layers", 0.0,
          kMostWeight);
    visit("attention_weight", self.attention_weight,
          "weight of two differences: of the last layers' relations of query and key, and of their relations of the "
          "values",
          0.0, kMostWeight);
  }
};

/// The weight of a class in the loss: 1, or the inverse of its frequency.
enum class ClassWeights : uint8_t { kNone, kBalanced };
inline std::span<const char* const> names_of(ClassWeights /*type*/) {
  static constexpr std::array<const char*, 2> kNames = {"none", "balanced"};
  return kNames;
}

/// All settings of a fine-tuning run. The default optimizer is the one of the BERT paper.
struct FinetuneConfig : RunConfig {
  FinetuneConfig();

  std::string task;
  double num_train_epochs = 3;
  int64_t early_stopping_patience = 0;
  bool keep_best = false;
  std::string metric_for_best_model;
  int64_t frozen_layers = -1;
  ClassWeights class_weights = ClassWeights::kNone;
  double label_smoothing = 0;
  int64_t max_train_examples = 0;
  TaskFilesConfig data;
  DistillationConfig distillation;
  EmbeddingConfig embedding;
  RerankConfig rerank;
  /// Pointers of the fields that a file, the environment or the command line has set, as "/model/hidden_size". Only
  /// load_finetune_config() fills it in. It is no field: it is neither saved nor compared.
  std::set<std::string> given;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    RunConfig::visit_fields(self, visit);
    visit("task", self.task, "the task, which gives the head, the files and the metrics",
          OneOf{"squad-v1", "squad-v2", "cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "xnli",
                "ner", "swag", "text-classification", "multi-label-classification", "text-regression", "rerank",
                "embedding"});
    visit("max_steps", self.max_steps,
          "number of applied optimizer steps; the length of the schedule; 0 = that of num_train_epochs", 0, kMostSteps);
    visit("num_train_epochs", self.num_train_epochs, "times that the training examples are used, if max_steps is 0",
          0.001, 10000.0);
    visit("evaluate_every", self.evaluate_every,
          "steps between evaluations on the development examples; one is made at the end in any case", 0, kMostSteps,
          kMayChange);
    visit(
        "initial_checkpoint", self.initial_checkpoint,
        "run, checkpoint, export or model of another program that gives the encoder, its sizes and the tokenizer; the "
        "head is new",
        kPath);
    visit(
        "early_stopping_patience", self.early_stopping_patience,
        "the run ends after so many evaluations in a row without a better value of the task's first metric; 0 = never",
        0, 1 << 20, kMayChange);
    visit(
        "keep_best", self.keep_best,
        "run_directory/best is the checkpoint with the best value of the task's first metric; at the end, metrics and "
        "predictions are made from it",
        kMayChange);
    visit("metric_for_best_model", self.metric_for_best_model,
          "the metric of the task, or loss, by which early_stopping_patience and keep_best compare; empty = the first "
          "metric",
          kMayChange);
    visit("frozen_layers", self.frozen_layers,
          "-1 = all weights train; 0 = the embeddings stay as they are; n = the first n layers, too. From 0 on without "
          "gradient_checkpointing and distributed.shard_optimizer_state",
          -1, 1000);
    visit("class_weights", self.class_weights,
          "balanced: the loss of a class counts by the inverse of its frequency (scikit-learn's balanced); "
          "multi-label: pos_weight is the number of examples without the label by the number with it");
    visit("label_smoothing", self.label_smoothing,
          "share of the label's probability that is spread evenly over all classes in the loss (PyTorch's "
          "CrossEntropyLoss); of tasks with one class a text, word or choice",
          0.0, 1.0);
    visit("max_train_examples", self.max_train_examples, "training examples at most: the first of the file; 0 = all", 0,
          kMostSteps);
    visit("data", self.data, "files of the task and tokenization");
    visit("distillation", self.distillation, "a larger model as teacher");
    visit("embedding", self.embedding, "task embedding: data sets, losses and the modules behind the encoder");
    visit("rerank", self.rerank, "task rerank: the loss, and the columns of passages");
  }
};

/// As load_pretrain_config() in pretrain_config.h.
FinetuneConfig load_finetune_config(const std::string& path, const std::vector<std::string>& overrides = {});

/// Parses a configuration that to_json wrote, as parse_pretrain_config(). Throws ConfigError.
FinetuneConfig parse_finetune_config(const std::string& text, const std::string& name);

std::string to_json(const FinetuneConfig& config);
std::string config_sha256(const FinetuneConfig& config);
std::string finetune_config_schema();
std::vector<ConfigDifference> compare(const FinetuneConfig& before, const FinetuneConfig& after);
std::vector<ConfigDifference> compare_for_resume(const FinetuneConfig& before, const FinetuneConfig& after);

/// True if the configuration at `path`, with its overrides, is one of fine-tuning: it names a task. False also for what
/// cannot be read, of which the loading of a configuration says what is wrong.
bool names_task(const std::string& path, const std::vector<std::string>& overrides);

/// Adds to `model` what stands in the configuration of its run: sizes, tokenizer and, of a run of fine-tuning, the
/// settings of its texts. `config` is the text in a checkpoint, of fine-tuning if `model` has a task. Throws DataError
/// with `name`.
void read_trained_model(const std::string& config, ModelDescription& model, const std::string& name);

/// A run of embeddings trains a sentence encoder: if `model` is of one, takes the task and what belongs to it out of the
/// description, and returns true.
bool take_sentence_encoder(ModelDescription& model);

}  // namespace bert
