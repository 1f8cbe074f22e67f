// The body of a request for answers.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/serve/queue/served_model.h"

namespace bert {

struct PredictRequest {
  std::vector<ModelInput> inputs;
  bool list = false;  // "inputs" is a list: so is the answer
  AnswerOptions options;
};

struct PredictRequestRules {
  int64_t max_texts = ServiceOptions().max_texts;
  InputForm form = InputForm::kText;
  std::vector<std::string> parameters = {};  // Model::parameters()
  AnswerOptions defaults = {};
  std::function<std::optional<int32_t>(const std::string&)> find_token = nullptr;  // for the parameter targets
  /// As Hugging Face's inference API: "options", which has no effect here, is allowed, and parameters may stand beside
  /// "inputs", where its clients put some.
  bool hugging_face = false;
};

/// Reads the members of `object` that are parameters into `options`. null stands for the default, as Hugging Face's
/// clients send it. Throws HttpError: 422.
void read_parameters(const nlohmann::json& object, const PredictRequestRules& rules, AnswerOptions& options);

/// Reads {"inputs": input or list of inputs, "parameters": {"top_k": 5}}, with inputs of rules.form. Throws HttpError: 413
/// for too many texts, 422 for another form.
PredictRequest parse_predict_request(nlohmann::json body, const PredictRequestRules& rules);

}  // namespace bert
