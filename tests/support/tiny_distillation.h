// A tiny teacher and a tiny student, for tests of distillation.
#pragma once

#include <filesystem>
#include <string>

#include "app/finetune/finetuning_run.h"
#include "tests/support/tiny_finetuning.h"

namespace bert::testing {

/// The sizes of the teacher. The student's are those of tiny(): 2 layers, hidden_size 32, 2 heads.
inline PretrainConfig tiny_teacher_sizes(const TemporaryDirectory& directory) {
  PretrainConfig config = tiny(directory, "unused");
  config.model.num_hidden_layers = 5;
  config.model.hidden_size = 48;
  config.model.num_attention_heads = 3;
  return config;
}

/// Fine-tunes the teacher of tiny_task() in the run directory "teacher". Returns its configuration.
inline FinetuneConfig train_tiny_teacher(const TemporaryDirectory& directory) {
  FinetuneConfig config = tiny_task(directory, "teacher");
  config.initial_checkpoint = directory.path("teacher-model");
  config.model = tiny_teacher_sizes(directory).model;
  write_tiny_model(config.initial_checkpoint, tiny_teacher_sizes(directory), 6);
  finetune(config, false);
  return config;
}

/// tiny_task() with a teacher, which is trained at the first call.
inline FinetuneConfig tiny_distillation(const TemporaryDirectory& directory, const std::string& run) {
  const std::string teacher = directory.path("teacher");
  if (!std::filesystem::exists(teacher)) train_tiny_teacher(directory);
  FinetuneConfig config = tiny_task(directory, run);
  config.distillation.teacher = teacher;
  return config;
}

}  // namespace bert::testing
