#include "app/config/finetune_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "app/config/fields_impl.h"
#include "app/config/pretrain_config.h"
#include "app/parse/json_tree.h"
#include "app/system/crypto.h"
#include "app/system/errors.h"
#include "data/io/error.h"

namespace bert {
namespace {

constexpr const char* kSentenceTask = "embedding";  // its runs train sentence encoders

/// The fields of a configuration for reading only.
ConfigFields fields(const FinetuneConfig& config) { return fields_of(const_cast<FinetuneConfig&>(config)); }

void check_required(const FinetuneConfig& config, ConfigReport& report) {
  const auto required = [&](const char* pointer, bool empty, const char* example) {
    if (empty) report.add(pointer, fmt::format("required, but not given; for example {}", example));
  };
  required("/run_directory", config.run_directory.empty(), "\"runs/sst2\"");
  required("/task", config.task.empty(), "\"sst2\"");
  required("/initial_checkpoint", config.initial_checkpoint.empty(), "\"runs/phase2\"");
  const bool has_sets = !config.embedding.sets.empty() &&
                        std::ranges::none_of(config.embedding.sets, [](const auto& set) { return set.file.empty(); });
  const bool has_training = !config.data.train_file.empty() || has_sets;
  required("/data/directory", config.data.directory.empty() && !has_training, "\"glue/SST-2\"");
  if (config.initial_vocabulary.rows != InitialRows::kNone && config.data.vocab_file.empty()) {
    report.add("/initial_vocabulary/rows", "want data.vocab_file, the vocabulary of the run, or none here",
               {"/data/vocab_file"});
  }
}

/// Checks that a field of `distillation` which has no effect is at its default.
void check_distillation(const FinetuneConfig& config, ConfigReport& report) {
  const DistillationConfig &distillation = config.distillation, unused;
  const auto expect_unused = [&](const char* field, const auto& value, const auto& unused_value, const char* want,
                                 const std::vector<std::string>& unless) {
    if (value == unused_value) return;
    report.add(std::string("/distillation/") + field,
               fmt::format("want {}, or {} here, got {}", want, unused_value, value), unless);
  };
  if (distillation.teacher.empty()) {
    const auto needs_teacher = [&](const char* field, const auto& value, const auto& unused_value) {
      expect_unused(field, value, unused_value, "distillation.teacher", {"/distillation/teacher"});
    };
    needs_teacher("labels_weight", distillation.labels_weight, unused.labels_weight);
    needs_teacher("logits_weight", distillation.logits_weight, unused.logits_weight);
    needs_teacher("temperature", distillation.temperature, unused.temperature);
    needs_teacher("hidden_weight", distillation.hidden_weight, unused.hidden_weight);
    needs_teacher("attention_weight", distillation.attention_weight, unused.attention_weight);
    return;
  }
  if (distillation.labels_weight == 0 && distillation.logits_weight == 0) {
    report.add("/distillation/logits_weight",
               "want a logits_weight or a labels_weight above 0: no other loss trains the head",
               {"/distillation/labels_weight"});
  }
  if (distillation.logits_weight == 0) {
    expect_unused("temperature", distillation.temperature, unused.temperature, "logits_weight above 0",
                  {"/distillation/logits_weight"});
  }
  if (config.micro_batch_size == RunConfig::kFromMemory) {
    report.add("/micro_batch_size", "want a number with distillation.teacher, whose memory auto does not count",
               {"/distillation/teacher"});
  }
}

/// Checks that a part of the configuration which `task` alone has is at its default, for another task.
template <class Part>
void expect_default(const FinetuneConfig& config, Part FinetuneConfig::*part, const char* task, ConfigReport& report) {
  if (config.task == task) return;
  FinetuneConfig plain = config;
  plain.*part = Part();
  for (const ConfigDifference& d : compare_configs(fields(plain), fields(config)))
    report.add(d.pointer, fmt::format("want task {} with it, and task is {}", task, config.task), {"/task"});
}

/// Checks the settings that only a run of embeddings has, and those that it does not have.
void check_embedding(const FinetuneConfig& config, ConfigReport& report) {
  const EmbeddingConfig& embedding = config.embedding;
  expect_default(config, &FinetuneConfig::embedding, kSentenceTask, report);
  if (config.task != kSentenceTask) return;
  if (config.class_weights != ClassWeights::kNone) report.add("/class_weights", "want none for task embedding");
  if (config.max_train_examples > 0) report.add("/max_train_examples", "want 0 for task embedding");
  bool compares = false;
  for (size_t i = 0; i < embedding.sets.size(); ++i) {
    const EmbeddingSetConfig &set = embedding.sets[i], unused;
    compares |= set.loss == EmbeddingLoss::kMse;
    const auto expect_unused = [&](const char* field, bool changed, bool used) {
      if (changed && !used)
        report.add(fmt::format("/embedding/sets/{}/{}", i, field),
                   fmt::format("want no such field, which the loss {} does not read", name_of_value(set.loss)));
    };
    const bool ranking = set.loss == EmbeddingLoss::kMultipleNegativesRanking;
    const bool distances = set.loss == EmbeddingLoss::kTriplet || set.loss == EmbeddingLoss::kContrastive ||
                           set.loss == EmbeddingLoss::kOnlineContrastive;
    expect_unused("scale", set.scale != unused.scale, ranking || set.loss == EmbeddingLoss::kCoSent);
    expect_unused("margin", set.margin != unused.margin, distances);
    expect_unused("distance", set.distance != unused.distance, distances);
    expect_unused("symmetric", set.symmetric, ranking);
    expect_unused("false_negative_margin", set.false_negative_margin != unused.false_negative_margin, ranking);
  }
  if (compares == config.distillation.teacher.empty())
    report.add("/distillation/teacher",
               compares ? "required by the loss mse" : "want a set with the loss mse, which learns from the teacher");
}

/// Checks that the settings of labels belong to the task.
void check_labels(const FinetuneConfig& config, ConfigReport& report) {
  const TaskDataConfig &data = config.data.task, unused;
  const auto expect = [&](const char* field, bool changed, const std::set<std::string>& tasks) {
    if (!changed || tasks.contains(config.task)) return;
    report.add(std::string("/data/") + field,
               fmt::format("want task {} with it, and task is {}", fmt::join(tasks, " or "), config.task), {"/task"});
  };
  expect("label_columns", !data.label_columns.empty(), {kMultiLabelTask, kRegressionTask});
  expect("negative_label", !data.negative_label.empty(), {kClassesTask});
  expect("entity_markers", data.entity_markers != unused.entity_markers, {kClassesTask});
  expect("label_scheme", data.label_scheme != unused.label_scheme, {"ner"});
  expect("language", data.language != unused.language, {"xnli"});
  expect("train_language", data.train_language != unused.train_language, {"xnli"});
  if (data.entity_markers != EntityMarkers::kNone && !data.text_pair_column.empty())
    report.add("/data/entity_markers", "want none with data.text_pair_column: both entities are in one text",
               {"/data/text_pair_column"});
}

void check(const FinetuneConfig& config, ConfigReport& report) {
  check_run(config, report);
  check_embedding(config, report);
  expect_default(config, &FinetuneConfig::rerank, "rerank", report);
  if (!config.rerank.reads_passages() && !config.rerank.text_columns.empty())
    report.add("/rerank/text_columns", "want none with binary_cross_entropy, whose columns data names");
  if (config.rerank.loss != RerankLoss::kMarginMse && !config.rerank.label_column.empty())
    report.add("/rerank/label_column", "want none without margin_mse, which alone reads it");
  check_labels(config, report);
  if (config.data.task.label_separator.empty()) report.add("/data/label_separator", "want a text, which is not empty");
  if (config.reports("samples")) report.add("/report", "want no samples, which pre-training alone has");
  check_distillation(config, report);
  const auto needs_evaluations = [&](const char* pointer, bool used) {
    if (used && config.evaluate_every == 0)
      report.add(pointer, "want evaluate_every above 0, which sets the evaluations to choose from",
                 {"/evaluate_every"});
  };
  needs_evaluations("/early_stopping_patience", config.early_stopping_patience > 0);
  needs_evaluations("/keep_best", config.keep_best);
  if (!config.metric_for_best_model.empty() && !config.keep_best && config.early_stopping_patience == 0)
    report.add("/metric_for_best_model", "want keep_best or early_stopping_patience with it",
               {"/keep_best", "/early_stopping_patience"});
}

}  // namespace

FinetuneConfig::FinetuneConfig() {
  // Devlin et al. 2018, appendix A.3; the groups of run_classifier.py and run_squad.py.
  constexpr double kRate = 2e-5, kWarmup = 0.1;
  micro_batch_size = global_batch_size = 32;
  optimizer.type = OptimizerType::kAdamW;
  optimizer.lr = kRate;
  optimizer.no_decay = {"bias", "LayerNorm.bias", "LayerNorm.weight"};
  schedule.type = ScheduleType::kLinear;
  schedule.warmup_proportion = kWarmup;
}

FinetuneConfig load_finetune_config(const std::string& path, const std::vector<std::string>& overrides) {
  FinetuneConfig config;
  const ConfigFields all = fields_of(config);
  ConfigReport report;
  read_config(all, path, overrides, report);
  for (const ConfigField& field : all.leaves) {
    if (report.given(field.pointer)) config.given.insert(field.pointer);
  }
  check_required(config, report);
  check(config, report);
  report.throw_if_any();
  return config;
}

FinetuneConfig parse_finetune_config(const std::string& text, const std::string& name) {
  FinetuneConfig config;
  ConfigReport report;
  read_config_text(fields_of(config), text, name, report);
  check(config, report);
  report.throw_if_any();
  return config;
}

std::string to_json(const FinetuneConfig& config) { return write_config(fields(config)); }

std::string config_sha256(const FinetuneConfig& config) { return sha256(to_json(config)); }

std::string finetune_config_schema() {
  return config_schema(fields(FinetuneConfig()), "bert fine-tuning configuration");
}

std::vector<ConfigDifference> compare(const FinetuneConfig& before, const FinetuneConfig& after) {
  return compare_configs(fields(before), fields(after));
}

std::vector<ConfigDifference> compare_for_resume(const FinetuneConfig& before, const FinetuneConfig& after) {
  return compare_configs(fixed_fields(fields(before)), fixed_fields(fields(after)));
}

bool names_task(const std::string& path, const std::vector<std::string>& overrides) {
  FinetuneConfig config;
  ConfigReport report;
  try {
    read_config(fields_of(config), path, overrides, report);
  } catch (const std::exception&) {
    return false;
  }
  return report.given("/task");
}

void read_trained_model(const std::string& config, ModelDescription& model, const std::string& name) {
  try {
    if (model.task.empty()) {
      const PretrainConfig run = parse_pretrain_config(config, name);
      model.config = run.model;
      model.tokenizer = run.data.tokenizer;
      return;
    }
    const FinetuneConfig run = parse_finetune_config(config, name);
    model.config = run.model;
    model.tokenizer = run.data.tokenizer;
    if (!run.run_directory.empty()) model.task_data = run.data.task;  // others come from no run
  } catch (const ConfigError& error) {
    throw DataError(error.what());
  }
}

bool take_sentence_encoder(ModelDescription& model) {
  if (model.task != kSentenceTask) return false;
  model.task.clear();
  model.labels.clear();
  model.task_data.reset();
  return true;
}

}  // namespace bert
