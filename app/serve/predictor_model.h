// A bert::Predictor behind a server.
#pragma once

#include <cstdint>
#include <memory>

#include "app/inference/predictor.h"
#include "app/inference/task_predictor.h"
#include "app/serve/queue/model.h"

namespace bert {

/// The result of Model::facts(). `task` is one of `bert serve`.
ModelFacts facts_of(const ModelDescription& model, Task task, const PredictorOptions& options);

/// The model of `task`. Batches that are computed at once have equal parts of LibTorch's threads. Several models may have
/// one predictor.
std::unique_ptr<Model> make_predictor_model(std::shared_ptr<const Predictor> predictor, Task task, ModelFacts facts);

/// The same of a fine-tuned model: text-classification, token-classification, question-answering or rerank.
std::unique_ptr<Model> make_task_model(std::shared_ptr<const TaskPredictor> predictor, Task task, ModelFacts facts);

}  // namespace bert
