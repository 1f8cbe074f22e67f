// The config.json of transformers.
#pragma once

#include <string>
#include <vector>

#include "data/config.h"
#include "model/config.h"

namespace bert {

struct HuggingFaceConfig {
  BertConfig model;
  Objective pairs = Objective::kNsp;  // the objective of the sentence-pair head, if the weights have one
  std::string task;                   // a task of `bert finetune` whose head the class of the model has; "": none
  std::vector<std::string> labels;    // of its classes, in their order
};

/// Reads the config.json of a BERT. Missing keys have transformers' defaults, unknown keys are left alone. Throws
/// DataError with file, line and field, also for a model that is not BERT's architecture, by the name of its model_type;
/// InputMissing, IoError.
HuggingFaceConfig read_hugging_face_config(const std::string& path);

}  // namespace bert
