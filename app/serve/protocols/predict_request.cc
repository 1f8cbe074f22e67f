#include "app/serve/protocols/predict_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/http/types.h"
#include "app/parse/bounded_json.h"
#include "app/serve/protocols/json_body.h"
#include "data/config.h"
#include "data/io/error.h"
#include "data/tasks/entity_markers.h"

namespace bert {
namespace {

using nlohmann::json;
constexpr int64_t kMaxTopK = 1000;     // that of bert predict
constexpr int64_t kMaxTokens = 65535;  // that of data.max_seq_length and data.max_answer_length

/// The parameters of Hugging Face's pipelines and servers that no model here has.
const std::vector<std::string> kForeignParameters = {
    "align_to_words", "dimensions", "doc_stride",   "max_question_len", "max_seq_len",
    "normalize",      "padding",    "prompt_name",  "raw_scores",       "return_all_scores",
    "return_tensors", "stride",     "top_n_tokens", "truncation",       "truncation_direction"};

template <class Enum>
Enum value_of(const json& value, const std::string& name) {
  const std::optional<Enum> found = value.is_string() ? value_named<Enum>(value.get<std::string>()) : std::nullopt;
  if (found) return *found;
  throw HttpError(422,
                  fmt::format("{}: want one of {}, got {}", name, fmt::join(names_of(Enum()), ", "), as_text(value)));
}

void read_parameter(const std::string& key, const json& value, const PredictRequestRules& rules,
                    AnswerOptions& options) {
  const std::string name = "parameters: \"" + key + "\"";
  if (key == "top_k") {
    options.top_k = integer_of(value, name, kMaxTopK);
  } else if (key == "max_answer_len") {
    options.max_answer_len = integer_of(value, name, kMaxTokens);
  } else if (key == "max_seq_len") {
    options.max_seq_len = integer_of(value, name, kMaxTokens);
  } else if (key == "max_question_len") {
    options.max_question_len = integer_of(value, name, kMaxTokens);
  } else if (key == "doc_stride" || key == "stride") {
    options.overlap = integer_of(value, name, kMaxTokens);
  } else if (key == "align_to_words") {
    if (!boolean_of(value, name)) throw HttpError(422, name + ": answers are whole words here: want true");
  } else if (key == "handle_impossible_answer") {
    options.handle_impossible_answer = boolean_of(value, name);
  } else if (key == "truncate") {
    options.long_texts = boolean_of(value, name) ? LongTexts::kTruncate : LongTexts::kRefuse;
  } else if (key == "normalize") {
    options.normalize = boolean_of(value, name);
  } else if (key == "dimensions") {
    options.dimensions = integer_of(value, name, kMaxDimensions);
  } else if (key == "prompt_name") {
    if (!value.is_string()) throw HttpError(422, fmt::format("{}: want a name, got {}", name, as_text(value)));
    options.prompt_name = value.get<std::string>();
  } else if (key == "function_to_apply") {
    options.function_to_apply = value_of<FunctionToApply>(value, name);
  } else if (key == "aggregation_strategy") {
    options.aggregation = value_of<Aggregation>(value, name);
  } else if (key == "ignore_labels") {
    options.ignore_labels = texts_of(value, name);
  } else {
    for (const std::string& target : texts_of(value, name)) {
      const std::optional<int32_t> id = rules.find_token(target);
      if (!id) throw HttpError(422, fmt::format("{}: {} is no token of the vocabulary", name, as_text(json(target))));
      options.targets.push_back(*id);
    }
  }
}

const char* words_of(InputForm form) {
  switch (form) {
    case InputForm::kText:
      break;
    case InputForm::kTextOrPair:
      return "a text or {\"text\", \"text_pair\"}";
    case InputForm::kPair:
      return "{\"text\", \"text_pair\"}, a query and a passage";
    case InputForm::kMarkedText:
      return "a text with [E1], [/E1], [E2] and [/E2], or {\"text\", \"spans\"}";
    case InputForm::kQuestionAndContext:
      return "{\"question\", \"context\"}";
  }
  return "a text";
}

ModelInput input_of(const json& value, const std::string& name, InputForm form) {
  if (value.is_string() && form != InputForm::kQuestionAndContext && form != InputForm::kPair)
    return {.text = value.get<std::string>()};
  if (!value.is_object() || form == InputForm::kText)
    throw HttpError(422, name + ": want " + words_of(form) + ", got " + value.type_name());
  const bool pair = form != InputForm::kQuestionAndContext, marked = form == InputForm::kMarkedText;
  const char *first = pair ? "text" : "context", *second = pair ? "text_pair" : "question";
  check_keys(value, name, {first, marked ? "spans" : second});
  const auto member = [&](const char* key) {
    const auto found = value.find(key);
    if (found == value.end()) throw HttpError(422, name + ": \"" + key + "\" is missing: want " + words_of(form));
    if (!found->is_string()) throw HttpError(422, name + ": \"" + key + "\": want a text, got " + found->type_name());
    return found->get<std::string>();
  };
  if (!marked) return {.text = member(first), .second = member(second)};
  try {
    return {.text = marked_text(member(first), value.value("spans", json()))};
  } catch (const DataError& error) {
    throw HttpError(422, name + ": \"spans\": " + error.what());
  }
}

}  // namespace

void read_parameters(const json& object, const PredictRequestRules& rules, AnswerOptions& options) {
  if (!object.is_object()) throw HttpError(422, std::string("parameters: want an object, got ") + object.type_name());
  for (const auto& [key, value] : object.items()) {
    if (lists(rules.parameters, key)) {
      if (!value.is_null()) read_parameter(key, value, rules, options);
      continue;
    }
    const std::string supported =
        rules.parameters.empty() ? "" : fmt::format("; known: {}", fmt::join(rules.parameters, ", "));
    if (value.is_null() && lists(kForeignParameters, key)) continue;
    throw HttpError(422, lists(kForeignParameters, key)
                             ? fmt::format("parameters: \"{}\" of Hugging Face's API is not supported for this task{}",
                                           key, supported)
                             : fmt::format("parameters: unknown key \"{}\"{}", key, supported));
  }
}

PredictRequest parse_predict_request(json body, const PredictRequestRules& rules) {
  PredictRequest request;
  request.options = rules.defaults;
  if (rules.hugging_face && body.is_object()) {
    body.erase("options");
    json beside = json::object();  // parameters beside "inputs"
    for (const auto& [key, member] : body.items())
      if (lists(rules.parameters, key) || lists(kForeignParameters, key)) beside[key] = member;
    for (const auto& [key, member] : beside.items()) body.erase(key);
    read_parameters(beside, rules, request.options);
  }
  check_keys(body, "body", {"inputs", "parameters"});
  const auto inputs = body.find("inputs");
  if (inputs == body.end())
    throw HttpError(422, std::string("body: \"inputs\" is missing: want ") + words_of(rules.form) + ", or a list");
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
  if (const auto parameters = body.find("parameters"); parameters != body.end())
    read_parameters(*parameters, rules, request.options);
  return request;
}

}  // namespace bert
