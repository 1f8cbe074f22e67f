// The command line of bert evaluate, and its parts with and without LibTorch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/config/device_choice.h"
#include "app/inference/answer_options.h"
#include "app/retrieval/retrieval_prompts.h"
#include "app/tasks/task_scoring.h"
#include "data/config.h"
#include "data/tasks/task_data.h"
#include "data/tasks/task_definition.h"

namespace bert {

/// The wishes of "embedding" beside a table.
struct EmbeddingEvaluation {
  std::string kind;  // of a table: one of kPairKinds; empty: by its columns
  std::string beir;  // directory of BEIR's layout; empty: a table
  std::string split = "test", run;
  RetrievalPrompts prompts;
};

struct EvaluateOptions {
  std::string task, dataset, directory;
  bool v2 = false;
  PredictionFiles files;                                // without a checkpoint
  std::string checkpoint, precision, output_directory;  // with one
  DeviceChoice device = DeviceChoice::kCpu;
  bool trust = false, raw_weights = false;
  std::optional<LongTexts> long_texts = {};
  EmbeddingEvaluation embedding = {};
  std::vector<std::string> overrides;  // data.KEY=value

  /// `config` with the overrides. Throws ConfigError.
  [[nodiscard]] TaskDataConfig changed(const TaskDataConfig& config) const;
};

/// Parses the command line. Returns false after --help. Throws UsageError.
bool parse_evaluate(int argc, char** argv, EvaluateOptions& options);

/// The definition of the task. "squad" with --v2 is squad-v2, else squad-v1.
TaskDefinition definition_of(const EvaluateOptions& options);

/// The path of the development examples.
std::string find_dataset(const EvaluateOptions& options, const TaskDefinition& task);

/// Reads that file; task.labels are set. Throws as read_task().
TaskExamples read_examples(const TaskDefinition& task, const std::string& path, const TaskDataConfig& config,
                           TaskUse use = TaskUse::kFeatures);

/// Prints the metrics as one JSON object.
void print_metrics(const std::vector<TaskMetric>& metrics);

}  // namespace bert
