#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "app/cli/command_line.h"
#include "app/device/device.h"
#include "app/inference/label_order.h"
#include "app/inference/pretrained.h"
#include "app/inference/task_predictor.h"
#include "app/retrieval/retrieval_files.h"
#include "app/system/exit_codes.h"
#include "app/system/machine/memory.h"
#include "app/system/machine/threads.h"
#include "app/verbs/model/evaluate.h"
#include "app/verbs/model/evaluate_embedding.h"
#include "app/verbs/model/evaluate_pretraining.h"
#include "app/verbs/model/evaluate_rerank.h"
#include "app/verbs/model/predict_task.h"
#include "app/verbs/model/weights_options.h"
#include "app/verbs/verbs.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/io_errors.h"

namespace bert {
namespace {

/// Gives the task the labels `named`, or those of the model if there are none, and the model the order of the task's
/// labels. Throws DataError for a model of another kind of task, or with other classes.
void fit_task(TaskDefinition& task, Pretrained& pretrained, const std::vector<std::string>& named) {
  if (task.scores) {  // a CrossEncoder of sentence-transformers calls its output a class
    check_model_of_task(pretrained, Task::kRerank);
    pretrained.model.task = task.name;
    pretrained.model.labels.clear();
    return;
  }
  if (kind_of_task(pretrained.model.task) != task.kind || (task.multi_label && !pretrained.model.multi_label)) {
    throw DataError(
        fmt::format("{}: {}; expected a model for {}", pretrained.name,
                    pretrained.model.task.empty() ? "was not fine-tuned" : "was fine-tuned on " + pretrained.model.task,
                    task.name));
  }
  if (task.labels.empty()) task.labels = named.empty() ? pretrained.model.labels : named;
  const std::vector<std::string> labels = pretrained.model.labels;
  if (order_labels(pretrained, task.labels) == LabelMatch::kByPosition) {
    fmt::print(stderr, "bert evaluate: the classes {} of the model are taken as {}, in this order\n",
               fmt::join(labels, ", "), fmt::join(task.labels, ", "));
  }
}

/// Says how many examples were cut, or refuses them.
void check_long_texts(const std::string& path, const TaskFeatures& features, const TaskExamples& examples,
                      const TaskDataConfig& config) {
  if (features.cut == 0) return;
  const std::string cut = path + ": " + features.cut_of(examples.size(), config);
  if (config.long_texts == LongTexts::kRefuse) throw DataError(cut + "; --long truncate cuts them");
  fmt::print(stderr, "bert evaluate: {} and were cut; --long refuse refuses them\n", cut);
}

void write_outputs(const std::string& directory, const std::vector<TaskOutput>& outputs) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw_io_error(directory, "create", error.value());
  for (const TaskOutput& output : outputs) {
    AtomicFile file(directory + "/" + output.name);
    file.write(output.content);
    file.commit();
  }
}

}  // namespace

int evaluate_torch_command(int argc, char** argv) {
  if (is_pretraining_evaluation(argc, argv)) return evaluate_pretraining_torch_command(argc, argv);
  EvaluateOptions options;
  if (!parse_evaluate(argc, argv, options)) return kOk;
  TaskDefinition task = definition_of(options);
  const bool retrieval = !options.embedding.beir.empty();
  const std::string path = retrieval ? options.embedding.beir : find_dataset(options, task);
  PredictorOptions how;
  how.device = select_device(options.device, /*local_rank=*/0);
  how.dtype = dtype_named(options.precision);
  how.int8 = options.precision == "int8";
  check_int8(how);
  use_threads(0);
  const WeightsKind weights = options.raw_weights ? WeightsKind::kRaw : WeightsKind::kAveraged;
  check_raw_weights(options.checkpoint, weights);
  const std::optional<Task> use = options.task == kEmbeddingTask ? std::optional(Task::kEmbedding) : std::nullopt;
  Pretrained pretrained = load_pretrained({options.checkpoint, options.trust, use}, weights, say_in("bert evaluate"));
  if (options.task == kEmbeddingTask) {
    TaskDataConfig no_length;
    no_length.max_seq_length = 0;
    if (const int64_t most = options.changed(no_length).max_seq_length; most > 0) pretrained.model.max_tokens = most;
    evaluate_embedding(options, path, pretrained, how);
    return kOk;
  }
  const TaskDataConfig named = options.changed({});
  fit_task(task, pretrained, task.several_labels() && named.labels.empty() ? named.label_columns : named.labels);
  if (task.scores && has_reranking_samples(path)) {
    evaluate_rerank(options, path, std::move(pretrained), how);
    return kOk;
  }
  TaskDataConfig usual;
  usual.max_seq_length = std::min(usual.max_seq_length, most_tokens(pretrained.model));
  usual.window_pooling = text_settings(pretrained.model).window_pooling;
  TaskDataConfig config = options.changed(pretrained.model.task_data.value_or(usual));
  TaskDataConfig no_threshold;
  no_threshold.label_threshold = std::numeric_limits<double>::quiet_NaN();
  if (std::isnan(options.changed(no_threshold).label_threshold))  // the command names none
    config.label_thresholds = pretrained.model.label_thresholds;
  config.cut_at_begin = pretrained.model.cut_at_begin;
  config.odd_token_to_longer = !pretrained.model.task_data;
  config.entity_markers = text_settings(pretrained.model).entity_markers;
  config.long_texts = options.long_texts.value_or(config.long_texts);
  apply_settings(task, config);
  if (const int64_t most = pretrained.model.config.max_position_embeddings; config.max_seq_length > most) {
    throw DataError(fmt::format("{}: has {} positions; expected data.max_seq_length of at most that, not {}",
                                pretrained.name, most, config.max_seq_length));
  }
  const TaskExamples examples = read_examples(task, path, config, TaskUse::kScoring);
  if (!examples.remark.empty()) fmt::print(stderr, "bert evaluate: {}\n", examples.remark);
  const TaskFeatures features = make_features(examples, *pretrained.tokenizer, config, /*for_training=*/false);
  check_long_texts(path, features, examples, config);
  const TaskInference model(pretrained, how);
  keep_large_blocks();
  const std::vector<float> logits = task_logits(model, features, choices_of(examples, 0), config.window_pooling, how);
  const TaskScores scores = score_task(examples, features, logits, *pretrained.tokenizer, config);
  if (!options.output_directory.empty()) write_outputs(options.output_directory, scores.outputs);
  print_metrics(scores.metrics);
  return kOk;
}

}  // namespace bert
