// The config.json of transformers.
#pragma once

#include <string>

#include "app/config/model_description.h"

namespace bert {

/// Reads the config.json of a BERT: sizes; the objective of the sentence-pair head, if the weights have one; the task
/// of `bert finetune` whose head the class of the model has, and its labels. Missing keys have transformers' defaults,
/// unknown keys are left alone. Throws DataError with file, line and field, also for a model that is not BERT's
/// architecture, by the name of its model_type; InputMissing, IoError.
ModelDescription read_hugging_face_config(const std::string& path);

}  // namespace bert
