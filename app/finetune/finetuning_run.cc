#include "app/finetune/finetuning_run.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "app/checkpoint/fit.h"
#include "app/checkpoint/position_rows.h"
#include "app/finetune/embedding_scoring.h"
#include "app/finetune/finetuning_step.h"
#include "app/interop/hugging_face_files.h"
#include "app/system/errors.h"
#include "app/tasks/label_set_scoring.h"
#include "app/train/initial_vocabulary.h"
#include "app/train/step/optimizer_step.h"
#include "app/train/trainer.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/loader/row_loader.h"
#include "data/loader/task_loader.h"
#include "data/tasks/embedding_data.h"
#include "data/tasks/task_data.h"
#include "data/tokenizer/vocabulary_warnings.h"
#include "model/evaluation_guard.h"
#include "model/state_dict.h"

namespace bert {
namespace {

struct TaskLogits {
  std::vector<float> logits;  // as TaskFeatures describes
  double loss = 0;            // mean loss of all labels, as in training; 0 where there are none
};

/// Computes the logits of all sequences without dropout. Batches are dealt to the ranks in turn; the logits do not depend
/// on the number of ranks. Every rank must call it and gets the same result. `with_loss`: the sequences have labels.
/// `stop` is asked before each batch and may differ between ranks. If it is true on one rank, no rank gets a result.
std::optional<TaskLogits> compute_task_logits(FinetuningStep& step, const TaskFeatures& features, bool with_loss,
                                              const std::function<bool()>& stop) {
  constexpr int64_t kBatch = 32;  // units; the logits depend on it by rounding only
  const int64_t choices = step.head().choices, units = features.units(choices), most = features.most_sequences(choices);
  const int64_t batches = (units + kBatch - 1) / kBatch;
  const std::vector<int64_t> offsets = features.logit_offsets();
  torch::Tensor flat = torch::zeros({offsets.back()});
  // One row for each batch. One rank fills in a row, so the sum over ranks is exact.
  enum Column : int64_t { kEvaluated, kLoss, kItems, kColumns };
  torch::Tensor table = torch::zeros({batches, kColumns}, torch::kDouble);
  const torch::NoGradGuard no_grad;
  const EvaluationGuard evaluation(step.module());
  for (int64_t i = step.rank(); i < batches && !stop(); i += step.world_size()) {
    std::vector<int64_t> members(static_cast<size_t>(std::min(kBatch, units - i * kBatch)));
    std::iota(members.begin(), members.end(), i * kBatch);
    const PackedBatch batch =
        pack_task_sequences(features, choices, members, members, /*pin_memory=*/false, most).to(step.device());
    const torch::Tensor logits = step.forward(batch);
    auto* row = table.mutable_data_ptr<double>() + i * kColumns;
    row[kEvaluated] = 1;
    if (with_loss) {
      row[kItems] = step.labels_of(batch).item<double>();
      // The mean over classes that all have the weight 0 is not a number.
      if (row[kItems] > 0) row[kLoss] = step.loss(logits, batch).item<double>() * row[kItems];
    }
    const int64_t begin = offsets[static_cast<size_t>(i * kBatch * choices)];
    flat.narrow(0, begin, logits.numel()).copy_(logits.flatten());
  }
  table = step.sum_over_ranks(table);
  if (table.select(1, kEvaluated).sum().item<double>() < static_cast<double>(batches)) return std::nullopt;
  flat = step.sum_over_ranks(flat);
  TaskLogits result;
  const auto* values = flat.const_data_ptr<float>();
  result.logits.assign(values, values + flat.numel());
  double loss = 0, items = 0;
  for (int64_t i = 0; i < batches; ++i) {  // in the order of the batches, for any number of ranks
    loss += table.const_data_ptr<double>()[i * kColumns + kLoss];
    items += table.const_data_ptr<double>()[i * kColumns + kItems];
  }
  if (items > 0) result.loss = loss / items;
  return result;
}

constexpr const char* kEvaluationsSinceBest = "evaluations_since_best";
constexpr const char* kBestStep = "best_step";

std::string best_name(const TaskDefinition& task) { return "best_" + task.main_metric(); }

std::unique_ptr<StepLoader> make_loader(const FinetuningInputs& inputs, const RunPlace& place) {
  const TaskLoaderConfig batches{.choices = inputs.head.unit(),
                                 .micro_batch_size = inputs.config.micro_batch_size,
                                 .global_batch_size = inputs.config.global_batch_size,
                                 .seed = static_cast<uint64_t>(inputs.config.seed),
                                 .rank = get_rank(place.group),
                                 .world_size = get_world_size(place.group),
                                 .pin_memory = place.device.is_cuda()};
  if (inputs.train) return std::make_unique<TaskLoader>(inputs.train, batches);
  const EmbeddingConfig& embedding = inputs.config.embedding;
  return std::make_unique<RowLoader>(inputs.embedding.sets,
                                     RowLoaderConfig{.batches = batches,
                                                     .no_duplicates = embedding.no_duplicates,
                                                     .round_robin = embedding.sampling == SetSampling::kRoundRobin});
}

int64_t count(const std::vector<TaskSet>& sets) {
  int64_t examples = 0;
  for (const TaskSet& set : sets) examples += set.examples.size();
  return examples;
}

int64_t sequences_of(const FinetuningInputs& inputs) {
  if (inputs.train) return std::ssize(inputs.train->sequences);
  int64_t sequences = 0;
  for (const RowSet& set : inputs.embedding.sets) sequences += std::ssize(set.features->sequences);
  return sequences;
}

/// `metrics` as "accuracy 0.8123, f1 0.7".
std::string text_of(const std::vector<TaskMetric>& metrics) {
  std::string text;
  for (const TaskMetric& metric : metrics)
    text += fmt::format("{}{} {:.4f}", text.empty() ? "" : ", ", metric.name, metric.value);
  return text;
}

}  // namespace

/// While it lives, the model of a step has the weights that rank 0 passes. Every rank must make one; the other ranks pass
/// an empty list. The destructor gives the model its own weights back, to the bit.
class BorrowedWeights {
 public:
  /// `step` must outlive this object. Throws c10::Error on rank 0 if the weights are those of another model.
  BorrowedWeights(OptimizerStep& step, const StateDict& weights) {
    for (const auto& item : state_dict(step.module())) {
      const at::Tensor tensor = item.value().detach();
      own_.emplace_back(tensor, tensor.clone());
    }
    if (step.rank() == 0) load_state_dict(step.module(), weights);
    step.broadcast_parameters();
  }
  ~BorrowedWeights() {
    const torch::NoGradGuard no_grad;
    for (const auto& [tensor, values] : own_) tensor.copy_(values);
  }
  BorrowedWeights(const BorrowedWeights&) = delete;
  BorrowedWeights& operator=(const BorrowedWeights&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> own_;  // each tensor of the model with its values before
};

FinetuningRun::FinetuningRun(FinetuningInputs inputs, const RunPlace& place)
    : group_(place.group),
      inputs_(std::move(inputs)),
      step_(inputs_.config, inputs_.head, place.device, group_),
      log_(inputs_.config, {.config_sha256 = config_sha256(inputs_.config), .pooler = inputs_.head.has_pooler()},
           step_),
      loader_(make_loader(inputs_, place)) {
  for (const std::string& sentence : inputs_.notes) log_.note(sentence);
  if (inputs_.task.kind == TaskKind::kEmbedding) learn_embeddings(place);
  if (!inputs_.teacher) return;
  step_.learn_from(std::make_unique<Distillation>(inputs_.config, *inputs_.teacher, place.device));
  inputs_.teacher->weights = StateDict();
}

void FinetuningRun::learn_embeddings(const RunPlace& place) {
  const FinetuneConfig& config = inputs_.config;
  EmbeddingObjective::Encode teacher;
  if (inputs_.teacher) {
    teacher = vectors_of(*inputs_.teacher, place.device, config.precision);
    inputs_.teacher.reset();
  }
  const int64_t size = vector_size(inputs_.head.sentence, config.model.hidden_size);
  step_.learn_embeddings({.sets = inputs_.embedding.shapes,
                          .rows = config.global_batch_size,
                          .stride = most_columns(inputs_.embedding.sets),
                          .dimensions = matryoshka_of(config.embedding.matryoshka_dimensions, size)},
                         group_, std::move(teacher),
                         unread_prompts(inputs_.head.sentence, config.embedding, *inputs_.tokenizer));
}

int64_t FinetuningRun::evaluation_examples() const { return count(inputs_.dev); }

void FinetuningRun::announce(int64_t applied) {
  if (applied == 0) {
    log_.say(fmt::format(
        "task {}: {} training examples in {} sequences, {} development examples, {} to predict{}", inputs_.task.name,
        inputs_.train_examples, sequences_of(inputs_), count(inputs_.dev), count(inputs_.test),
        inputs_.task.labels.empty() ? "" : fmt::format("; labels {}", fmt::join(inputs_.task.labels, ", "))));
    if (inputs_.teacher) {
      log_.say(fmt::format("learning from {}, of {} layers and hidden_size {}, with the losses {}",
                           inputs_.teacher->name, inputs_.teacher->model.config.num_hidden_layers,
                           inputs_.teacher->model.config.hidden_size, fmt::join(step_.loss_names(), ", ")));
    }
    log_.note(fmt::format("{}, {}", name_of_value(inputs_.config.optimizer.type), step_.parameter_report()));
  }
  for (const std::string& warning : vocabulary_warnings(tokenizer(), inputs_.start.name))
    log_.say("warning: " + warning);
}

std::optional<TaskScores> FinetuningRun::score(const TaskSet& set, const TaskDataConfig& data,
                                               const std::function<bool()>& stop, double& loss) {
  const bool with_loss = set.examples.has_labels && inputs_.task.kind != TaskKind::kQuestionAnswering &&
                         inputs_.task.kind != TaskKind::kEmbedding;
  const auto computed = compute_task_logits(step_, set.features, with_loss, stop);
  if (!computed) return std::nullopt;
  loss = computed->loss;
  TaskScores scores;
  if (inputs_.task.kind == TaskKind::kEmbedding) {
    const at::Tensor vectors =
        torch::tensor(computed->logits).view({set.examples.size(), texts_in_row(set.examples), -1});
    scores = score_embeddings(set.examples, vectors);
  } else {
    scores = score_task(set.examples, set.features, computed->logits, tokenizer(), data);
  }
  if (is_rank_zero()) {
    for (const TaskOutput& output : scores.outputs)
      write_file(inputs_.config.run_directory + "/" + output.name, output.content);
  }
  return scores;
}

std::optional<FinetuningRun::Development> FinetuningRun::score_development(const std::function<bool()>& stop) {
  Development all;
  TaskDataConfig data = inputs_.config.data.task;
  all.null_threshold = data.null_score_diff_threshold;
  for (const TaskSet& set : inputs_.dev) {
    double loss = 0;
    const auto scores = score(set, data, stop, loss);
    if (!scores) return std::nullopt;
    all.metrics.insert(all.metrics.end(), scores->metrics.begin(), scores->metrics.end());
    if (all.loss == 0) all.loss = loss;
    all.null_threshold = data.null_score_diff_threshold = scores->null_threshold;
    all.label_thresholds = data.label_thresholds = scores->label_thresholds;
  }
  return all;
}

/// Note [Metrics of the best weights]
/// The plain metrics in summary.json, and the files of predictions, are those of the last evaluation. With keep_best the
/// run evaluates run_directory/best once more at its end: metrics and files are then those of the best weights, as users of
/// transformers' load_best_model_at_end expect. metrics.jsonl keeps the metrics of each step's own weights.
std::optional<EvaluationReport> FinetuningRun::evaluate(int64_t applied, bool last, const std::function<bool()>& stop) {
  std::optional<Development> development = score_development(stop);
  if (!development) return std::nullopt;
  EvaluationReport report;
  if (development->loss > 0 || inputs_.task.main_metric() == kLossFigure)
    report.figures[kLossFigure] = development->loss;
  for (const TaskMetric& metric : development->metrics)
    report.figures[metric.name] = report.summary[metric.name] = metric.value;
  report.main_figure = main_figure(inputs_.task, report.summary);
  report.text = inputs_.dev.empty() ? "no development examples" : "development " + text_of(development->metrics);
  null_threshold_ = development->null_threshold;
  label_thresholds_ = development->label_thresholds;
  if (watches_best()) keep_score(report, applied);
  if (last || ended_early()) {
    const std::unique_ptr<BorrowedWeights> best = borrow_best(applied);
    if (best) {
      development = score_development([] { return false; });
      for (const TaskMetric& metric : development->metrics) report.summary[metric.name] = metric.value;
      report.text += fmt::format("; of the best step, {}: {}", best_.step, text_of(development->metrics));
    }
    score_tests(report, *development);
  }
  if (inputs_.task.no_answers) report.summary[kNullThresholdFigure] = development->null_threshold;
  put_thresholds(development->label_thresholds, report.summary);
  return report;
}

void FinetuningRun::score_tests(EvaluationReport& report, const Development& development) {
  TaskDataConfig data = inputs_.config.data.task;
  data.null_score_diff_threshold = development.null_threshold;
  data.label_thresholds = development.label_thresholds;
  for (const TaskSet& set : inputs_.test) {
    double loss = 0;
    const auto scores = score(
        set, data, [] { return false; }, loss);
    if (!scores || scores->metrics.empty()) continue;
    for (const TaskMetric& metric : scores->metrics) report.summary["test_" + metric.name] = metric.value;
    report.text += "; test " + text_of(scores->metrics);
  }
}

std::unique_ptr<BorrowedWeights> FinetuningRun::borrow_best(int64_t applied) {
  if (!inputs_.config.keep_best || best_.step == applied) return nullptr;
  const std::string directory = inputs_.config.run_directory + "/best";
  Checkpoint best;
  const bool found = !of_rank_zero(fmt::format("read the best checkpoint at step {}", applied), [&]() -> std::string {
                        try {
                          best = load_model(directory);
                          if (best.state.step == best_.step) return "found";
                          log_.say(fmt::format("{}: is of step {}, and the best evaluation was of step {}", directory,
                                               best.state.step, best_.step));
                        } catch (const std::exception& error) {
                          log_.say(error.what());
                        }
                        log_.say("metrics and predictions are those of the last weights");
                        return "";
                      }).empty();
  if (!found) return nullptr;
  auto borrowed = std::make_unique<BorrowedWeights>(step_, best.model);
  expect_whole(best.model);
  return borrowed;
}

/// Compares the main metric with the best one so far, and adds the best to the figures.
void FinetuningRun::keep_score(EvaluationReport& report, int64_t applied) {
  const std::string& metric = inputs_.task.main_metric();
  const double value =
      metric == kLossFigure ? report.figures.at(kLossFigure).get<double>() : report.summary.at(report.main_figure);
  improved_ = !best_.value || (smaller_is_better(metric) ? value < *best_.value : value > *best_.value);
  ++best_.evaluations_since;
  if (improved_) best_ = {.value = value, .step = applied, .evaluations_since = 0};
  report.summary[best_name(inputs_.task)] = *best_.value;
  report.summary[kBestStep] = static_cast<double>(best_.step);
  report.summary[kEvaluationsSinceBest] = static_cast<double>(best_.evaluations_since);
}

void FinetuningRun::evaluated(int64_t applied) {
  if (improved_ && inputs_.config.keep_best) save_to(inputs_.config.run_directory + "/best", applied);
  improved_ = false;
}

bool FinetuningRun::ended_early() {
  const int64_t patience = inputs_.config.early_stopping_patience;
  return patience > 0 && best_.evaluations_since >= patience;
}

RunState::Earlier FinetuningRun::read_earlier(const CheckpointState& state, const std::string& directory) {
  const std::string file = directory + "/state.json";
  if (state.model.task != inputs_.config.task) {
    throw ConfigError(fmt::format("task: was {} in {}, now {}; use another run_directory",
                                  state.model.task.empty() ? "pre-training" : state.model.task, directory,
                                  inputs_.config.task));
  }
  const FinetuneConfig before = parse_finetune_config(state.config, file);
  if (const auto value = state.metrics.find(best_name(inputs_.task)); value != state.metrics.end()) {
    best_.value = value->second;
    best_.step = static_cast<int64_t>(state.metrics.at(kBestStep));
    best_.evaluations_since = static_cast<int64_t>(state.metrics.at(kEvaluationsSinceBest));
  }
  if (const auto value = state.metrics.find(kNullThresholdFigure); value != state.metrics.end())
    null_threshold_ = value->second;
  label_thresholds_ = thresholds_in(state.metrics, inputs_.task.labels);
  return {.seed = before.seed,
          .global_batch_size = before.global_batch_size,
          .precision = before.precision,
          .changes = compare_for_resume(before, inputs_.config),
          .all = compare(before, inputs_.config)};
}

void FinetuningRun::start_from_initial_checkpoint() {
  const std::string& name = inputs_.start.name;
  StateDict weights;
  std::vector<std::string> begun, missing;
  const StateDict initial = state_dict(step_.module());
  if (inputs_.vocabulary_rows) {
    inputs_.start.weights = extend_embeddings(inputs_.start.weights, *inputs_.vocabulary_rows,
                                              inputs_.config.initial_vocabulary.rows, initial);
  }
  for (const auto& item : initial) {
    const bool of_encoder = item.key().starts_with("bert.");
    const StateDict& source = of_encoder ? inputs_.start.weights : inputs_.start.sentence_weights;
    const torch::Tensor* trained = source.find(item.key());
    if (trained == nullptr)
      (of_encoder && !item.key().starts_with("bert.pooler.") ? missing : begun).push_back(item.key());
    weights.insert(item.key(), trained != nullptr ? *trained : item.value().detach().clone());
  }
  if (!missing.empty()) throw DataError(fmt::format("initial_checkpoint: {} lacks {}", name, fmt::join(missing, ", ")));
  StateDict no_moments;
  const torch::Tensor positions = state_dict(step_.module())[kPositionTable].detach().to(torch::kCPU);
  const std::string longer = lengthen_positions(weights, no_moments, positions, inputs_.config.initial_positions);
  if (!longer.empty()) log_.say("initial_checkpoint: " + name + ": " + longer);
  fit_checkpoint("initial_checkpoint: " + name, {}, {"/model/"}, [&] {
    step_.start_phase({.weights = weights, .optimizer_state = StateDict(), .keep_moments = false});
  });
  expect_whole(inputs_.start.weights);
  inputs_.start.weights = StateDict();
  log_.say(fmt::format("starting from the encoder of {}; new weights: {}", name,
                       begun.empty() ? "none" : fmt::format("{}", fmt::join(begun, ", "))));
}

/// Adds the thresholds of labels, if they were searched.
void FinetuningRun::put_thresholds(const std::vector<double>& thresholds,
                                   std::map<std::string, double>& figures) const {
  const ThresholdSearch search = inputs_.config.data.task.search_label_threshold;
  if (!inputs_.task.multi_label || thresholds.empty() || search == ThresholdSearch::kNone) return;
  if (search == ThresholdSearch::kOne) figures[kLabelThresholdFigure] = thresholds.front();
  for (size_t i = 0; i < thresholds.size() && search == ThresholdSearch::kPerLabel; ++i)
    figures[label_threshold_figure(inputs_.task.labels[i])] = thresholds[i];
}

void FinetuningRun::describe(Checkpoint& checkpoint) {
  const FinetuneConfig& config = inputs_.config;
  ModelDescription& model = checkpoint.state.model;
  model.config = config.model;
  model.objective = inputs_.head.has_pooler() ? Objective::kNsp : Objective::kMlm;
  model.task = config.task;
  model.labels = inputs_.task.labels;
  model.multi_label = inputs_.task.multi_label;
  model.start_markers = inputs_.head.start_markers;
  model.tokenizer = config.data.tokenizer;
  if (inputs_.task.kind == TaskKind::kEmbedding) {
    model.sentence = inputs_.head.sentence;
    model.labels = inputs_.embedding.classes;
    model.max_tokens = config.data.task.max_seq_length;
  }
  // The figures of the log may be those of the best weights; the threshold belongs to the weights of the checkpoint.
  if (inputs_.task.no_answers && null_threshold_) checkpoint.state.metrics[kNullThresholdFigure] = *null_threshold_;
  put_thresholds(label_thresholds_, checkpoint.state.metrics);
  take_thresholds(checkpoint.state.metrics, model);
  checkpoint.files = hugging_face_files(model, dtype_name(checkpoint.model));
}

int finetune(const FinetuneConfig& config, bool allow_config_change) {
  const auto make_run = [&](const RunPlace& place) {
    return std::make_unique<FinetuningRun>(read_finetuning_inputs(config, place), place);
  };
  return train(config, make_run, allow_config_change);
}

}  // namespace bert
