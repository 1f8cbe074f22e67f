#include "app/config/starting_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string_view>

#include "app/config/fields.h"
#include "app/config/fields_impl.h"
#include "app/config/finetune_config.h"
#include "app/config/pretrain_config.h"
#include "app/parse/bounded_json.h"

namespace bert {
namespace {

constexpr const char* kPretrain = "pretrain";

/// The keys of a file in their order. The keys of an object follow each other.
using Keys = std::vector<std::string>;

const Keys kPretrainKeys = {"run_directory",
                            "seed",
                            "device",
                            "precision",
                            "max_steps",
                            "micro_batch_size",
                            "global_batch_size",
                            "gradient_checkpointing",
                            "checkpoint_every",
                            "evaluate_every",
                            "log_every",
                            "keep_checkpoints",
                            "model/vocab_size",
                            "model/hidden_size",
                            "model/num_hidden_layers",
                            "model/num_attention_heads",
                            "model/intermediate_size",
                            "model/max_position_embeddings",
                            "model/hidden_dropout_prob",
                            "model/attention_probs_dropout_prob",
                            "data/train",
                            "data/validation",
                            "data/vocab_file",
                            "data/do_lower_case",
                            "data/masking",
                            "optimizer/type",
                            "optimizer/lr",
                            "optimizer/beta1",
                            "optimizer/beta2",
                            "optimizer/weight_decay",
                            "optimizer/max_grad_norm",
                            "schedule/type",
                            "schedule/warmup_proportion"};

Keys finetune_keys(const std::string& task) {
  Keys keys = {"task",
               "run_directory",
               "initial_checkpoint",
               "seed",
               "device",
               "precision",
               "num_train_epochs",
               "micro_batch_size",
               "global_batch_size",
               "evaluate_every",
               "checkpoint_every",
               "log_every",
               "frozen_layers",
               "data/directory",
               "data/max_seq_length",
               "data/do_lower_case"};
  const auto add = [&](const Keys& more) { keys.insert(keys.end(), more.begin(), more.end()); };
  if (task.starts_with("squad"))
    add({"data/doc_stride", "data/max_query_length", "data/max_answer_length", "data/n_best_size"});
  if (task == "squad-v2") add({"data/search_null_threshold"});
  if (task == "ner") add({"data/labels", "data/label_scheme"});
  if (task == "xnli") add({"data/language", "data/train_language"});
  if (task.starts_with("text-") || task == kMultiLabelTask || task == "rerank")
    add({"data/text_column", "data/text_pair_column", "data/label_column"});
  if (task == "text-classification" || task == kMultiLabelTask) add({"data/labels"});
  if (task == kMultiLabelTask) add({"data/label_columns", "data/label_separator", "data/search_label_threshold"});
  if (task == "embedding") add({"embedding/pooling", "embedding/normalize", "embedding/no_duplicates"});
  add({"optimizer/type", "optimizer/lr", "optimizer/weight_decay", "optimizer/max_grad_norm",
       "optimizer/layer_lr_decay", "schedule/type", "schedule/warmup_proportion"});
  return keys;
}

/// The values of configs/pretrain-adam.json, with an evaluation at every tenth checkpoint.
PretrainConfig pretrain_recipe() {
  PretrainConfig config;
  config.run_directory = "runs/first";
  config.precision = Precision::kBf16;
  config.micro_batch_size = 32;
  config.log_every = 100;
  config.evaluate_every = 10 * config.checkpoint_every;
  config.data.train = {"data/train"};
  config.data.validation = {"data/validation"};
  config.data.vocab_file = "vocab.txt";
  config.optimizer.type = OptimizerType::kAdamW;
  config.optimizer.lr = 1e-4;
  config.schedule.type = ScheduleType::kLinear;
  config.schedule.warmup_proportion = 0.01;
  return config;
}

struct TaskDirectory {
  std::string_view task, directory;
};
// The directories of `bert data download glue --output glue` and of the other tasks.
constexpr TaskDirectory kDirectories[] = {{"squad-v1", "squad"},  {"squad-v2", "squad"}, {"cola", "glue/CoLA"},
                                          {"sst2", "glue/SST-2"}, {"mrpc", "glue/MRPC"}, {"stsb", "glue/STS-B"},
                                          {"qqp", "glue/QQP"},    {"mnli", "glue/MNLI"}, {"qnli", "glue/QNLI"},
                                          {"rte", "glue/RTE"},    {"wnli", "glue/WNLI"}};

/// The values of configs/TASK.json.
FinetuneConfig finetune_recipe(const std::string& task) {
  FinetuneConfig config;
  config.task = task;
  config.run_directory = "runs/" + task;
  config.initial_checkpoint = "runs/phase2";
  config.data.directory = task.starts_with("text-") || task == kMultiLabelTask ? "texts" : task;
  for (const TaskDirectory& each : kDirectories) {
    if (each.task == task) config.data.directory = each.directory;
  }
  if (task.starts_with("squad")) {
    constexpr int64_t kLength = 384, kBatch = 12;
    constexpr double kRate = 3e-5;
    config.num_train_epochs = 2;
    config.micro_batch_size = kBatch;
    config.global_batch_size = task == "squad-v2" ? 2 * kBatch : kBatch;
    config.data.task.max_seq_length = kLength;
    config.optimizer.lr = kRate;
  }
  constexpr double kRateOfWords = 5e-5;
  constexpr int64_t kBatchOfChoices = 16;
  if (task == "rerank") {
    config.data.directory = "passages";
    config.data.task.text_column = "query";
    config.data.task.text_pair_column = "passage";
  }
  if (task == "embedding") config.data.directory = "pairs";
  if (task == "ner") config.optimizer.lr = kRateOfWords;
  if (task == "xnli") {
    config.data.task.language = "de";
    config.data.task.train_language = "en";
  }
  if (task == "swag") config.micro_batch_size = config.global_batch_size = kBatchOfChoices;
  return config;
}

/// The values that a field may have, for its comment.
std::string choices_of(const ConfigField& field) {
  std::string text;
  for (const std::string& word : field.allowed) text += (text.empty() ? "one of " : ", ") + word;
  return text;
}

void add_comment(std::string& out, const std::string& text, const std::string& indent) {
  constexpr size_t kWidth = 100;
  std::istringstream words(text);
  std::string line;
  for (std::string word; words >> word;) {
    if (!line.empty() && indent.size() + line.size() + word.size() > kWidth) {
      out += indent + "//" + line + "\n";
      line.clear();
    }
    line += " " + word;
  }
  out += indent + "//" + line + "\n";
}

/// The fields that `keys` names, as members of nested objects.
class StartingFile {
 public:
  explicit StartingFile(const ConfigFields& fields) : fields_(fields) {}

  std::string text(const std::string& heading, const Keys& keys) {
    std::istringstream lines(heading);
    for (std::string line; std::getline(lines, line);) add_comment(out_, line, "");
    out_ += "{";
    for (const std::string& key : keys) add(key);
    close_object();
    return out_ + "\n}\n";
  }

 private:
  static std::string quoted(const std::string& text) { return as_text(text); }

  void add(const std::string& key) {
    const size_t slash = key.find('/');
    const std::string object = slash == std::string::npos ? "" : key.substr(0, slash);
    if (object != object_) {
      close_object();
      if (!object.empty()) begin_member(object, help_of_object(object), "{");
      object_ = object;
      indent_ = object.empty() ? "  " : "    ";
      first_ = !object.empty();
    }
    const auto field = std::find_if(fields_.leaves.begin(), fields_.leaves.end(),
                                    [&](const ConfigField& leaf) { return leaf.pointer == "/" + key; });
    const std::string choices = choices_of(*field);
    begin_member(key.substr(slash == std::string::npos ? 0 : slash + 1),
                 field->help + (choices.empty() ? "" : " (" + choices + ")"), field_value(*field));
  }

  void begin_member(const std::string& name, const std::string& help, const std::string& value) {
    out_ += first_ ? "\n" : ",\n";
    first_ = false;
    add_comment(out_, help, indent_);
    out_ += indent_ + quoted(name) + ": " + value;
  }

  void close_object() {
    if (object_.empty()) return;
    out_ += "\n  }";
    object_.clear();
    indent_ = "  ";
    first_ = false;
  }

  [[nodiscard]] std::string help_of_object(const std::string& name) const {
    for (const auto& [pointer, help] : fields_.objects) {
      if (pointer == "/" + name) return help;
    }
    return "";
  }

  const ConfigFields& fields_;
  std::string out_, object_, indent_ = "  ";
  bool first_ = true;
};

template <class Config>
std::string file_of(Config config, const std::string& heading, const Keys& keys) {
  const ConfigFields fields = fields_of(config);
  return StartingFile(fields).text(heading, keys);
}

}  // namespace

std::vector<std::string> starting_tasks() {
  std::vector<std::string> tasks = {kPretrain};
  FinetuneConfig config;
  for (const ConfigField& field : fields_of(config).leaves) {
    if (field.pointer == "/task") tasks.insert(tasks.end(), field.allowed.begin(), field.allowed.end());
  }
  return tasks;
}

std::string starting_file(const std::string& task) {
  constexpr const char* kRules =
      "Paths count from the directory of this file. A key that is left out has its default; `bert config reference` "
      "prints all keys. `bert config validate FILE` checks this file.";
  if (task == kPretrain) {
    return file_of(
        pretrain_recipe(),
        fmt::format("Pre-training of BERT-base: the numbers of the BERT paper under AdamW. Set data and sizes, "
                    "then run `bert pretrain FILE`.\n{}",
                    kRules),
        kPretrainKeys);
  }
  return file_of(finetune_recipe(task),
                 fmt::format("Fine-tuning on {}: the recipe of configs/{}.json. Set initial_checkpoint and "
                             "data.directory, then run `bert finetune FILE`.\n{}",
                             task, task, kRules),
                 finetune_keys(task));
}

}  // namespace bert
