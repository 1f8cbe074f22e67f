// A bert::Predictor behind a server.
#pragma once

#include <cstdint>
#include <memory>

#include "app/inference/predictor.h"
#include "app/inference/task_predictor.h"
#include "app/serve/model.h"

namespace bert {

/// The model of `task`. Each thread that enters it computes with an equal part of LibTorch's
/// threads: `workers` threads will enter.
std::unique_ptr<Model> make_predictor_model(Predictor predictor, Task task, int64_t workers);

/// The same of a fine-tuned model: text-classification, token-classification or question-answering.
std::unique_ptr<Model> make_task_model(TaskPredictor predictor, int64_t workers);

}  // namespace bert
