#include "app/finetune/embedding_objective.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <memory>
#include <utility>

#include "app/inference/task_model.h"
#include "model/state_dict.h"
#include "optim/amp.h"

namespace bert {

EmbeddingObjective::Encode vectors_of(const Pretrained& teacher, c10::Device device, Precision precision) {
  const NoInitWeights no_init;
  BertForSentenceEmbedding model(teacher.model.config, teacher.model.sentence.value_or(SentenceEncoder()));
  load_state_dict(*model, sentence_weights_of(teacher));
  model->to(device, weights_dtype(precision));
  model->eval();
  return [model, device, precision](const PackedBatch& batch) mutable {
    const AutocastGuard autocast(device.type(), precision);
    return model->forward(batch);
  };
}

EmbeddingObjective::EmbeddingObjective(EmbeddingObjectiveConfig config, ProcessGroupPtr group, LinearImpl* classifier,
                                       Encode teacher)
    : config_(std::move(config)), group_(std::move(group)), classifier_(classifier), teacher_(std::move(teacher)) {}

at::Tensor EmbeddingObjective::whole_loss(int64_t set, const at::Tensor& vectors, const at::Tensor& labels,
                                          const at::Tensor& teacher) const {
  const EmbeddingSetShape& shape = config_.sets[static_cast<size_t>(set)];
  const auto in_rows = [&](const at::Tensor& all) { return all.view({labels.size(0), shape.columns, -1}); };
  EmbeddingTargets targets{.labels = labels, .teacher = teacher.defined() ? in_rows(teacher) : teacher};
  if (classifier_ != nullptr) {
    targets.classifier_weight = classifier_->weight;
    targets.classifier_bias = classifier_->bias;
  }
  const at::Tensor loss = embedding_loss(shape.config, in_rows(vectors), targets, config_.dimensions);
  if (classifier_ == nullptr || shape.config.loss == EmbeddingLoss::kSoftmax) return loss;
  return loss + (classifier_->weight.sum() + classifier_->bias.sum()) * 0.0;  // every parameter gets a gradient
}

at::Tensor EmbeddingObjective::places_of(const PackedBatch& batch) const {
  const int64_t first_row = batch.first_sequence / config_.stride / config_.rows * config_.rows;
  const int64_t columns = config_.sets[static_cast<size_t>(batch.source)].columns;
  const at::Tensor first_tokens = batch.cu_seqlens.narrow(0, 0, batch.num_sequences()).to(torch::kLong);
  const at::Tensor numbers =
      batch.dropout_keys.index_select(0, first_tokens).__rshift__(kDropoutKeyPositionBits) - first_row * config_.stride;
  return numbers.floor_divide(config_.stride) * columns + numbers.remainder(config_.stride);
}

void EmbeddingObjective::prepare(std::span<const PackedBatch> micro_batches, int64_t of_all_ranks,
                                 const Encode& encode) {
  micro_batches_ = of_all_ranks;
  if (of_all_ranks == 1) return;
  const int64_t set = micro_batches.front().source;
  const EmbeddingSetShape& shape = config_.sets[static_cast<size_t>(set)];
  at::Tensor vectors, teacher, labels;
  {
    const torch::NoGradGuard no_grad;
    // Each row is filled in by one micro-batch of one rank, so the sums over ranks are exact.
    const auto put = [](at::Tensor& all, int64_t rows, const at::Tensor& places, const at::Tensor& values) {
      if (!all.defined()) {
        std::vector<int64_t> sizes = values.sizes().vec();
        sizes[0] = rows;
        all = torch::zeros(sizes, values.options());
      }
      all.index_copy_(0, places, values);
    };
    for (const PackedBatch& batch : micro_batches) {
      const at::Tensor places = places_of(batch);
      put(vectors, config_.rows * shape.columns, places, encode(batch));
      if (shape.config.loss == EmbeddingLoss::kMse) put(teacher, config_.rows * shape.columns, places, teacher_(batch));
      put(labels, config_.rows, places.slice(0, 0, std::nullopt, shape.columns).floor_divide(shape.columns),
          batch.labels);
    }
    for (const at::Tensor& all : {vectors, teacher, labels}) {
      if (all.defined()) all_reduce(group_, all);
    }
  }
  vectors.set_requires_grad(true);
  const at::Tensor loss = whole_loss(set, vectors, labels, teacher);
  std::vector<at::Tensor> inputs = {vectors};
  if (classifier_ != nullptr) inputs.insert(inputs.end(), {classifier_->weight, classifier_->bias});
  const std::vector<at::Tensor> gradients = torch::autograd::grad({loss}, inputs);
  loss_ = loss.detach();
  vector_gradients_ = gradients[0];
  if (classifier_ == nullptr) return;
  weight_gradient_ = gradients[1];
  bias_gradient_ = gradients[2];
}

at::Tensor EmbeddingObjective::loss(const PackedBatch& batch, const at::Tensor& vectors) const {
  if (micro_batches_ == 1) {
    at::Tensor teacher;
    if (config_.sets[static_cast<size_t>(batch.source)].config.loss == EmbeddingLoss::kMse) {
      const torch::NoGradGuard no_grad;
      teacher = teacher_(batch);
    }
    return whole_loss(batch.source, vectors, batch.labels, teacher);
  }
  const at::Tensor gradients = vector_gradients_.index_select(0, places_of(batch));
  at::Tensor product = (vectors * gradients).sum() * static_cast<double>(micro_batches_);
  if (classifier_ != nullptr) {
    product = product + (classifier_->weight * weight_gradient_).sum() + (classifier_->bias * bias_gradient_).sum();
  }
  return loss_ + (product - product.detach());
}

}  // namespace bert
