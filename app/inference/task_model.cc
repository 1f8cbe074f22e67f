#include "app/inference/task_model.h"

#include <ATen/ops/stack.h>

#include <algorithm>
#include <string>
#include <vector>

#include "app/system/torch_errors.h"
#include "cuda_ext/ops.h"
#include "data/io/error.h"
#include "model/state_dict.h"
#include "model/windows.h"

namespace bert {
namespace {

using AnyTaskModel = std::variant<BertForSequenceClassification, BertForTokenClassification, BertForQuestionAnswering,
                                  BertForMultipleChoice, BertForSentenceEmbedding, BertForEntityMarkers>;

AnyTaskModel model_of(const BertConfig& config, TaskKind kind, int64_t num_outputs, const SentenceEncoder& sentence,
                      bool start_markers, WindowPooling window_pooling) {
  if (start_markers) return BertForEntityMarkers(config, num_outputs);
  switch (kind) {
    case TaskKind::kTokenClassification:
      return BertForTokenClassification(config, num_outputs);
    case TaskKind::kQuestionAnswering:
      return BertForQuestionAnswering(config);
    case TaskKind::kMultipleChoice:
      return BertForMultipleChoice(config);
    case TaskKind::kEmbedding:
      return BertForSentenceEmbedding(config, sentence, num_outputs);
    case TaskKind::kClassification:
    case TaskKind::kRegression:
      break;
  }
  return BertForSequenceClassification(config, num_outputs, window_pooling);
}

TaskModel on_device(TaskModel model, const PredictorOptions& options) {
  if (!options.is_fp32_on_cpu()) model.module()->to(options.device, options.dtype);
  return model;
}

struct HeadOf {
  LinearImpl* operator()(BertForQuestionAnswering& model) const { return model->qa_outputs.get(); }
  template <class Classifier>
  LinearImpl* operator()(Classifier& model) const {
    return model->classifier.is_empty() ? nullptr : model->classifier.get();
  }
};

struct Forward {
  const PackedBatch& batch;
  int64_t choices;

  torch::Tensor operator()(BertForQuestionAnswering& model) const {
    const QuestionAnsweringOutput output = model->forward(batch);
    return at::stack({output.start_logits, output.end_logits}, -1);
  }
  torch::Tensor operator()(BertForMultipleChoice& model) const { return model->forward(batch, choices); }
  template <class Classifier>
  torch::Tensor operator()(Classifier& model) const {
    return model->forward(batch);
  }
};

}  // namespace

TaskModel::TaskModel(const BertConfig& config, TaskKind kind, int64_t num_outputs, const SentenceEncoder& sentence,
                     bool start_markers, WindowPooling window_pooling)
    : model_(model_of(config, kind, num_outputs, sentence, start_markers, window_pooling)) {}

torch::Tensor TaskModel::forward(const PackedBatch& batch, int64_t choices) {
  return std::visit(Forward{batch, choices}, model_);
}

std::shared_ptr<torch::nn::Module> TaskModel::module() const {
  return std::visit([](const auto& model) -> std::shared_ptr<torch::nn::Module> { return model.ptr(); }, model_);
}

BertModelImpl& TaskModel::encoder() {
  return *std::visit([](auto& model) { return model->bert; }, model_);
}

LinearImpl* TaskModel::head() { return std::visit(HeadOf(), model_); }

torch::Tensor TaskModel::window_attention() const {
  const auto* model = std::get_if<BertForSequenceClassification>(&model_);
  return model != nullptr ? (*model)->window_attention : torch::Tensor();
}

void TaskModel::set_dropout_seed(int64_t seed) {
  std::visit([seed](auto& model) { model->dropout_seed = seed; }, model_);
}

void TaskModel::leave_out_prompt(const torch::Tensor& ids) {
  std::get<BertForSentenceEmbedding>(model_)->unread_prompts.push_back(ids);
}

TaskModel load_task_model(const Pretrained& pretrained, LoadMode mode) {
  const auto kind = kind_of_task(pretrained.model.task);
  if (!kind)
    throw DataError(pretrained.name + ": is of task " + pretrained.model.task + ", which this program does not know");
  const torch::Tensor* classifier = pretrained.weights.find("classifier.weight");
  const int64_t outputs = classifier != nullptr ? classifier->size(0) : 1;
  const NoInitWeights no_init;
  TaskModel model(pretrained.model.config, *kind, outputs, {}, pretrained.model.start_markers,
                  pretrained.weights.contains(kWindowAttention) ? WindowPooling::kAttention : WindowPooling::kMean);
  with_data_errors(pretrained.name + ": the weights are not those of a model of task " + pretrained.model.task,
                   [&] { load_state_dict(*model.module(), pretrained.weights, /*strict=*/true, mode); });
  expect_whole(pretrained.weights);
  model.module()->eval();
  return model;
}

TaskInference::TaskInference(const Pretrained& pretrained, const PredictorOptions& options)
    : TaskInference(pretrained, on_device(load_task_model(pretrained, LoadMode::kShare), options), options) {
  expect_whole(pretrained.weights);
}

TaskInference::TaskInference(const Pretrained& pretrained, TaskModel model, const PredictorOptions& options)
    : kind_(task_definition(pretrained.model.task).kind),
      start_markers_(pretrained.model.start_markers),
      encoder_(model.encoder(), options.int8 ? ops::Products::kInt8 : ops::Products::kOfDtype),
      head_weight_(model.head()->weight.detach().clone()),
      head_bias_(model.head()->bias.detach().clone()) {
  if (model.window_attention().defined()) window_attention_ = model.window_attention().detach().clone();
}

torch::Tensor TaskInference::forward(const PackedBatch& batch, int64_t choices) const {
  const BertModelOutput output = encoder_.forward(batch);
  const torch::Tensor states = start_markers_      ? marker_states(output.last_hidden_state, batch)
                               : has_pooler(kind_) ? output.pooler_output
                                                   : output.last_hidden_state;
  const torch::Tensor logits = ops::linear(states, head_weight_, head_bias_);
  return kind_ == TaskKind::kMultipleChoice ? logits.view({-1, choices}) : logits;
}

TaskInference::WindowLogits TaskInference::of_windows(const PackedBatch& batch) const {
  const torch::Tensor pooled = encoder_.forward(batch).pooler_output;
  WindowLogits result{.logits = ops::linear(pooled, head_weight_, head_bias_), .scores = {}};
  if (window_attention_.defined()) result.scores = window_scores(pooled, window_attention_);
  return result;
}

bool has_pooler(TaskKind kind) {
  return kind != TaskKind::kTokenClassification && kind != TaskKind::kQuestionAnswering && kind != TaskKind::kEmbedding;
}

}  // namespace bert
