#include "app/serve/predict_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/parse/bounded_json.h"
#include "app/serve/http_types.h"
#include "data/io/error.h"

namespace bert {
namespace {

using nlohmann::json;
constexpr int64_t kMaxTopK = 1000;  // that of bert predict

json parse(const std::string& body) {
  try {
    return parse_bounded_json(body, "body");
  } catch (const DataError& error) {
    throw HttpError(400, error.what());
  }
}

/// Throws if `object` has a key that is not in `known`.
void check_keys(const json& object, const std::string& name, const std::vector<std::string>& known) {
  if (!object.is_object()) throw HttpError(422, name + ": want an object, got " + object.type_name());
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string names;
    for (const std::string& one : known) names += (names.empty() ? "" : ", ") + one;
    throw HttpError(422, name + ": unknown key \"" + key + "\"" + (names.empty() ? "" : "; known: " + names));
  }
}

const char* words_of(InputForm form) {
  switch (form) {
    case InputForm::kText:
      break;
    case InputForm::kTextOrPair:
      return "a text or {\"text\", \"text_pair\"}";
    case InputForm::kQuestionAndContext:
      return "{\"question\", \"context\"}";
  }
  return "a text";
}

ModelInput input_of(const json& value, const std::string& name, InputForm form) {
  if (value.is_string() && form != InputForm::kQuestionAndContext) return {.text = value.get<std::string>()};
  if (!value.is_object() || form == InputForm::kText)
    throw HttpError(422, name + ": want " + words_of(form) + ", got " + value.type_name());
  const bool pair = form == InputForm::kTextOrPair;
  const char *first = pair ? "text" : "context", *second = pair ? "text_pair" : "question";
  check_keys(value, name, {first, second});
  const auto member = [&](const char* key) {
    const auto found = value.find(key);
    if (found == value.end()) throw HttpError(422, name + ": \"" + key + "\" is missing: want " + words_of(form));
    if (!found->is_string()) throw HttpError(422, name + ": \"" + key + "\": want a text, got " + found->type_name());
    return found->get<std::string>();
  };
  return {.text = member(first), .second = member(second)};
}

}  // namespace

PredictRequest parse_predict_request(const std::string& body, const PredictRequestRules& rules) {
  const json value = parse(body);
  std::vector<std::string> keys = {"inputs", "parameters"};
  if (rules.hugging_face) keys.emplace_back("options");
  check_keys(value, "body", keys);
  const auto inputs = value.find("inputs");
  if (inputs == value.end())
    throw HttpError(422, std::string("body: \"inputs\" is missing: want ") + words_of(rules.form) + ", or a list");
  PredictRequest request;
  request.top_k = rules.default_top_k;
  request.list = inputs->is_array();
  if (!request.list) {
    request.inputs.push_back(input_of(*inputs, "inputs", rules.form));
  } else {
    if (inputs->empty()) throw HttpError(422, "inputs: want at least one text");
    if (static_cast<int64_t>(inputs->size()) > rules.max_texts) {
      throw HttpError(413, "inputs: " + std::to_string(inputs->size()) + " texts; at most " +
                               std::to_string(rules.max_texts) + " are taken in a request");
    }
    for (size_t i = 0; i < inputs->size(); ++i)
      request.inputs.push_back(input_of((*inputs)[i], "inputs[" + std::to_string(i) + "]", rules.form));
  }
  if (const auto parameters = value.find("parameters"); parameters != value.end()) {
    check_keys(*parameters, "parameters",
               rules.default_top_k > 0 ? std::vector<std::string>{"top_k"} : std::vector<std::string>{});
    if (const auto top_k = parameters->find("top_k"); top_k != parameters->end()) {
      const bool fits = top_k->is_number_integer() && *top_k >= 1 && *top_k <= kMaxTopK;
      if (!fits) throw HttpError(422, "parameters: \"top_k\": want an integer from 1 to " + std::to_string(kMaxTopK));
      request.top_k = top_k->get<int64_t>();
    }
  }
  return request;
}

}  // namespace bert
