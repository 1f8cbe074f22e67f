// A training step asks nothing of the host that the host must wait for: after the third one no wait for the device, no
// memory of the driver, no copy but those of the batch, from pinned memory.
#include <ATen/ATen.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "app/finetune/distillation.h"
#include "app/finetune/finetuning_step.h"
#include "app/train/step/training_step.h"
#include "model/state_dict.h"
#include "tests/null_device/tests/step_testing.h"
#include "tests/support/device_under_test.h"
#include "tests/testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

/// Runs five steps of `accumulation` micro-batches, and checks the last two.
void check_pretraining(const PretrainConfig& config, int64_t accumulation, c10::Device device, bool sources = false) {
  TrainingStep step(config, device, nullptr);
  if (sources) step.sum_losses_by_source(2);
  const auto batches_of = [&](int64_t number) {
    std::vector<PackedBatch> batches = random_micro_batches(number, accumulation);
    for (PackedBatch& batch : batches) {
      if (sources) batch.masked_sources = batch.masked_positions.remainder(2);
    }
    return batches;
  };
  const Costs spent = costs_after_third(step, batches_of);
  CHECK(in_words(spent) == in_words({.from_pinned = 2 * copies_of(batches_of(0))}));
  CHECK(step.applied_steps() == 5);
  CHECK(costs().waits > 0);  // the negative twin: the line above waits
}

TEST_CASE("A step of pre-training costs the host nothing, in every precision", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  for (const char* precision : {"fp32", "tf32", "bf16", "fp16", "bf16-weights", "fp16-weights"}) {
    for (const char* average : {"micro_batches", "masked_tokens"}) {
      const int64_t accumulation = average == std::string("micro_batches") ? 2 : 3;
      INFO(precision << ", mean over " << average << ", " << accumulation << " micro-batches");
      PretrainConfig config = tiny_step(precision);
      config.optimizer.average = value_named<GradientAverage>(average).value();
      check_pretraining(config, accumulation, device);
    }
  }
}

TEST_CASE("A step of pre-training costs the host nothing, with every optimizer and option", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  for (const char* type : {"lamb", "adamw", "adam", "bert_adam", "stable_adamw"}) {
    for (const double norm : {0.0, 1e-3}) {  // no clipping, and clipping at every step
      INFO(type << ", max_grad_norm " << norm);
      PretrainConfig config = tiny_step(norm > 0 ? "bf16-weights" : "fp16");
      config.optimizer.type = value_named<OptimizerType>(type).value();
      config.optimizer.max_grad_norm = norm;
      config.optimizer.ema_decay = norm > 0 ? 0.99 : 0.0;
      check_pretraining(config, 1, device);
    }
  }
  for (const char* precision : {"fp32", "bf16"}) {
    INFO("recomputation, " << precision);
    PretrainConfig config = tiny_step(precision);
    config.gradient_checkpointing = true;
    check_pretraining(config, 2, device);
  }
  {
    INFO("layers with their own rates, no dropout, several sources");
    PretrainConfig config = tiny_step("bf16");
    config.optimizer.layer_lr_decay = 0.9;
    config.model.hidden_dropout_prob = config.model.attention_probs_dropout_prob = 0;
    check_pretraining(config, 2, device, /*sources=*/true);
  }
}

TEST_CASE("Steps cost the host nothing while the loss scale grows, and while it falls", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  for (const char* precision : {"fp16", "fp16-weights"}) {
    for (const bool grows : {true, false}) {
      INFO(precision << (grows ? ", grows" : ", falls"));
      PretrainConfig config = tiny_step(precision);
      config.amp.init_scale = grows ? 1024 : 4294967296.0;
      config.amp.growth_interval = 1;
      TrainingStep step(config, device, nullptr);
      const auto batches_of = [](int64_t number) { return random_micro_batches(number, 2); };
      const Costs spent = costs_after_third(step, batches_of);
      CHECK(in_words(spent) == in_words({.from_pinned = 2 * copies_of(batches_of(0))}));
      CHECK(step.applied_steps() == (grows ? 5 : 0));
      CHECK(step.scaler.current_scale().item<double>() == (grows ? 32768.0 : 134217728.0));
    }
  }
}

struct Task {
  const char* name;
  TaskHead head;
};

std::vector<Task> tasks() {
  const auto task = [](const char* name, TaskKind kind, int64_t outputs, int64_t choices = 1,
                       std::vector<float> weights = {}) {
    return Task{name, {.kind = kind, .num_outputs = outputs, .choices = choices, .class_weights = std::move(weights)}};
  };
  return {task("text-classification", TaskKind::kClassification, 3),
          task("text-classification", TaskKind::kClassification, 3, 1, {0.5F, 1.0F, 2.0F}),
          task("text-regression", TaskKind::kRegression, 1),
          task("ner", TaskKind::kTokenClassification, 3),
          task("ner", TaskKind::kTokenClassification, 3, 1, {0.5F, 1.0F, 2.0F}),
          task("swag", TaskKind::kMultipleChoice, 1, 2),
          task("squad-v1", TaskKind::kQuestionAnswering, 2)};
}

FinetuneConfig finetuning(const Task& task, const std::string& precision) {
  FinetuneConfig config;
  static_cast<RunConfig&>(config) = tiny_step(precision);
  config.task = task.name;
  config.optimizer.type = OptimizerType::kAdamW;
  return config;
}

void check_finetuning(FinetuningStep& step, int64_t accumulation) {
  const TaskHead& head = step.head();
  const auto batches_of = [&](int64_t number) {
    std::vector<PackedBatch> batches = random_micro_batches(number, accumulation);
    for (PackedBatch& batch : batches) batch = with_labels(batch, head.kind, head.num_outputs, head.choices);
    return batches;
  };
  const Costs spent = costs_after_third(step, batches_of);
  CHECK(in_words(spent) == in_words({.from_pinned = 2 * copies_of(batches_of(0))}));
  CHECK(step.applied_steps() == 5);
  for (const double term : step.take_mean_terms().terms) CHECK(std::isfinite(term));
}

TEST_CASE("A step of fine-tuning costs the host nothing, with every head", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  for (const Task& task : tasks()) {
    for (const char* average : {"micro_batches", "masked_tokens"}) {
      INFO(task.name << (task.head.class_weights.empty() ? "" : " with class weights") << ", mean over " << average);
      FinetuneConfig config = finetuning(task, "bf16");
      config.optimizer.average = value_named<GradientAverage>(average).value();
      FinetuningStep step(config, task.head, device, nullptr);
      check_finetuning(step, 2);
    }
  }
}

TEST_CASE("A step of fine-tuning costs the host nothing, in every precision", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  size_t number = 0;
  const std::vector<Task> all = tasks();
  for (const char* precision : {"fp32", "tf32", "fp16", "bf16-weights", "fp16-weights"}) {
    for (int64_t i = 0; i < 2; ++i) {  // every head in turn
      const Task& task = all[number++ % all.size()];
      INFO(precision << ", " << task.name);
      FinetuneConfig config = finetuning(task, precision);
      config.optimizer.average = GradientAverage::kMaskedTokens;
      config.frozen_layers = i == 0 ? -1 : 1;
      FinetuningStep step(config, task.head, device, nullptr);
      check_finetuning(step, 3);
    }
  }
}

/// A teacher of three layers with new weights.
Pretrained teacher_of(const Task& task) {
  BertConfig model = tiny_model();
  model.num_hidden_layers = 3;
  model.hidden_size = 48;
  TaskModel made(model, task.head.kind, task.head.num_outputs);
  init_weights(*made.module(), model, 7);
  Pretrained teacher;
  teacher.model.config = model;
  teacher.weights = state_dict(*made.module());
  teacher.model.task = task.name;
  return teacher;
}

TEST_CASE("A step of distillation costs the host nothing, with every head", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const std::vector<std::string> precisions = {"fp32", "bf16", "fp16", "bf16-weights"};
  size_t number = 0;
  for (const Task& task : tasks()) {
    const std::string precision = precisions[number++ % precisions.size()];
    INFO(task.name << ", " << precision);
    FinetuneConfig config = finetuning(task, precision);
    config.optimizer.average = number % 2 == 0 ? GradientAverage::kMicroBatches : GradientAverage::kMaskedTokens;
    FinetuningStep step(config, task.head, device, nullptr);
    step.learn_from(std::make_unique<Distillation>(config, teacher_of(task), device));
    check_finetuning(step, 2);
  }
}

}  // namespace
