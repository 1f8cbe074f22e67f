// The body of a request for answers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/serve/model.h"

namespace bert {

struct PredictRequest {
  std::vector<ModelInput> inputs;
  bool list = false;  // "inputs" is a list: so is the answer
  int64_t top_k = 0;
};

struct PredictRequestRules {
  int64_t max_texts = 1024;
  InputForm form = InputForm::kText;
  int64_t default_top_k = 0;  // above 0: "parameters" may have "top_k"
  bool hugging_face = false;  // "options", of Hugging Face's inference API, is allowed; it has no effect here
};

/// Parses {"inputs": input or list of inputs, "parameters": {"top_k": 5}}, with inputs of rules.form. Throws HttpError: 400 for what is no JSON, 413
/// for too many texts, 422 for JSON of another form.
PredictRequest parse_predict_request(const std::string& body, const PredictRequestRules& rules);

}  // namespace bert
