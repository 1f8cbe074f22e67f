#include "app/serve/protocols/text_embeddings.h"

#include <algorithm>
#include <utility>

#include "app/parse/bounded_json.h"
#include "app/serve/protocols/json_body.h"
#include "app/serve/protocols/number_text.h"
#include "app/serve/protocols/pipelines.h"
#include "app/serve/protocols/rerank.h"

namespace bert {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int kWrongModel = 424, kUnanswerable = 422;

void check_object(const json& value, const char* name) {
  if (!value.is_object())
    throw HttpError(kUnanswerable, std::string(name) + ": want an object, got " + value.type_name());
}

/// The body, with the members of "parameters" beside the others, as Hugging Face's clients may send them. Members that
/// mean nothing here are ignored, as text-embeddings-inference does.
json embed_body(json body) {
  check_object(body, "body");
  const json* inside = find_member(body, "parameters");
  if (inside != nullptr && !inside->is_object()) throw HttpError(kUnanswerable, "parameters: want an object");
  if (inside != nullptr) {
    const json parameters = *inside;
    for (const auto& [key, value] : parameters.items()) body[key] = value;
  }
  return body;
}

json embed_body(const Call& call) { return embed_body(parse_body(call.request.body)); }

/// truncate and truncation_direction.
void read_truncation(const json& body, AnswerOptions& wishes) {
  if (find_member(body, "truncate") != nullptr)
    wishes.long_texts = boolean_member_of(body, "truncate", true) ? LongTexts::kTruncate : LongTexts::kRefuse;
  const json* side = find_member(body, "truncation_direction");
  if (side == nullptr) return;
  wishes.cut_at_begin = *side == "Left" || *side == "left";
  if (!*wishes.cut_at_begin && *side != "Right" && *side != "right")
    throw HttpError(kUnanswerable, "truncation_direction: want Left or Right, got " + as_text(*side));
}

void read_prompt(const json& body, AnswerOptions& wishes) {
  if (const json* name = find_member(body, "prompt_name"); name != nullptr)
    wishes.prompt_name = string_of(*name, "prompt_name");
}

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

ServerResponse vectors_of(const Call& call, const json& body) {
  ServedModel& model = model_for(call, kEmbeddingTask, kWrongModel);
  AnswerOptions wishes{.normalize = boolean_member_of(body, "normalize", true)};
  read_truncation(body, wishes);
  read_prompt(body, wishes);
  if (const json* dimensions = find_member(body, "dimensions"); dimensions != nullptr)
    wishes.dimensions = integer_of(*dimensions, "dimensions", kMaxDimensions);
  Answers answers = model.ask(texts_or_ids(wanted_member(body, "inputs"), "inputs"), wishes, call.deadline);
  const size_t count = answers.all.size();
  return list_response(
      "[", count,
      [all = std::move(answers.all)](size_t i, std::string& out) { append_numbers(out, all[i]->numbers()); }, "]");
}

ServerResponse similarities_of(const Call& call, const json& body) {
  ServedModel& model = model_for(call, kEmbeddingTask, kWrongModel, call.name);
  const json& inputs = wanted_member(body, "inputs");
  check_object(inputs, "inputs");
  AnswerOptions wishes{.normalize = true};
  read_truncation(body, wishes);
  read_prompt(body, wishes);
  Texts texts{.inputs = {{.text = string_of(wanted_member(inputs, "source_sentence"), "inputs: source_sentence")}}};
  for (const std::string& sentence : texts_of(wanted_member(inputs, "sentences"), "inputs: sentences"))
    texts.inputs.push_back({.text = sentence});
  if (texts.inputs.size() < 2) throw NothingAsked("inputs: sentences: want one sentence or more");
  const Answers answers = model.ask(texts, wishes, call.deadline);
  std::vector<float> cosines;
  for (size_t i = 1; i < answers.all.size(); ++i)
    cosines.push_back(static_cast<float>(dot(answers.all[0]->numbers(), answers.all[i]->numbers())));
  ServerResponse response;
  append_numbers(response.body, cosines);
  return response;
}

/// True for the body of sentence similarity.
bool compares(const json& body) {
  return body.is_object() && body.contains("inputs") && body["inputs"].is_object() &&
         body["inputs"].contains("source_sentence");
}

/// True if `body` is text-embeddings-inference's question for the labels of texts: it has no "parameters", and no object
/// among its inputs, and the first model is a classifier.
bool wants_labels(const Call& call, const json& body) {
  const InputForm form = call.model().model(call.deadline).form();
  if (form != InputForm::kTextOrPair && form != InputForm::kPair) return false;
  if (!body.is_object() || body.contains("parameters") || !body.contains("inputs")) return false;
  const json& inputs = body["inputs"];
  return inputs.is_string() ||
         (inputs.is_array() && std::ranges::none_of(inputs, [](const json& each) { return each.is_object(); }));
}

/// A text, or the two of a pair.
ModelInput sequence_of(const json& texts, const std::string& name) {
  const bool fits = texts.is_array() && (texts.size() == 1 || texts.size() == 2);
  if (!fits) {
    throw HttpError(kUnanswerable, name +
                                       ": want a text, a pair [text, text], or a list of such lists; a list of texts "
                                       "is taken beside \"parameters\": {}");
  }
  return {.text = string_of(texts[0], name), .second = texts.size() == 2 ? string_of(texts[1], name) : ""};
}

/// text-embeddings-inference's /predict: all labels of a text or a pair, best first, or lists of them for a batch.
ServerResponse labels_of(const Call& call, const json& body) {
  const Model& model = call.model().model(call.deadline);
  const json& inputs = body["inputs"];
  Texts texts{.inputs = {}, .list = inputs.is_array() && !inputs.empty() && inputs[0].is_array()};
  if (inputs.is_array() && inputs.empty()) throw NothingAsked("inputs: want one text or more");
  if (inputs.is_string()) texts.inputs.push_back({.text = inputs.get<std::string>()});
  if (!inputs.is_string() && !texts.list) texts.inputs.push_back(sequence_of(inputs, "inputs"));
  if (texts.list) {
    for (const json& each : inputs)
      texts.inputs.push_back(sequence_of(each, "inputs[" + std::to_string(texts.inputs.size()) + "]"));
  }
  AnswerOptions wishes = model.hugging_face_defaults();
  if (model.form() == InputForm::kPair) wishes.function_to_apply = FunctionToApply::kSigmoid;
  if (boolean_member_of(body, "raw_scores", false)) wishes.function_to_apply = FunctionToApply::kNone;
  read_truncation(body, wishes);
  Answers answers = call.model().ask(texts, wishes, call.deadline);
  if (!texts.list) return json_response(answers.all[0]->as_hugging_face());
  const size_t count = answers.all.size();
  return list_response(
      "[", count,
      [all = std::move(answers.all)](size_t i, std::string& out) { out += json_text(all[i]->as_hugging_face()); }, "]");
}

}  // namespace

ServerResponse embed_root(const Call& whole) {
  json body = parse_body(whole.request.body);
  const Call call = for_body(whole, body);
  if (call.model().task() == kRerankTask) return rank_texts(call);
  if (call.model().task() != kEmbeddingTask) {
    const bool labels = body.is_object() && body.contains("raw_scores") && wants_labels(call, body);
    return labels ? labels_of(call, body) : hugging_face_answers(call, std::move(body));
  }
  body = embed_body(std::move(body));
  return compares(body) ? similarities_of(call, body) : vectors_of(call, body);
}

ServerResponse predict_texts(const Call& whole) {
  json body = parse_body(whole.request.body);
  const Call call = for_body(whole, body);
  if (!wants_labels(call, body)) return own_answers(call, std::move(body));
  try {
    return labels_of(call, body);
  } catch (const HttpError& error) {
    return embed_refusal(error);
  }
}

ServerResponse named_answers(const Call& call) {
  json body = parse_body(call.request.body);
  if (model_named(call, call.name).task() == kEmbeddingTask && compares(body))
    return similarities_of(call, embed_body(std::move(body)));
  return hugging_face_answers(call, std::move(body));
}

ServerResponse embed_texts(const Call& call) { return vectors_of(call, embed_body(call)); }

ServerResponse similar_sentences(const Call& call) { return similarities_of(call, embed_body(call)); }

ServerResponse embed_tokens(const Call& call) {
  ServedModel& model = model_for(call, kEmbeddingTask, kWrongModel);
  const json body = embed_body(call);
  AnswerOptions wishes{.of_tokens = true};
  read_truncation(body, wishes);
  read_prompt(body, wishes);
  Answers answers = model.ask(texts_or_ids(wanted_member(body, "inputs"), "inputs"), wishes, call.deadline);
  const size_t count = answers.all.size();
  return list_response(
      "[", count,
      [all = std::move(answers.all)](size_t i, std::string& out) {
        const std::span<const float> numbers = all[i]->numbers();
        const size_t size = numbers.size() / static_cast<size_t>(all[i]->vectors());
        for (size_t at = 0; at < numbers.size(); at += size) {
          out += at == 0 ? '[' : ',';
          append_numbers(out, numbers.subspan(at, size));
        }
        out += ']';
      },
      "]");
}

ServerResponse rank_texts(const Call& call) {
  const json body = embed_body(call);
  if (body.contains("documents")) return cohere_rerank(call);
  ServedModel& model = model_for(call, kRerankTask, kWrongModel);
  const bool raw = boolean_member_of(body, "raw_scores", false),
             with_text = boolean_member_of(body, "return_text", false);
  AnswerOptions wishes{.function_to_apply = raw ? FunctionToApply::kNone : FunctionToApply::kSigmoid};
  read_truncation(body, wishes);
  const std::vector<std::string> texts = texts_of(wanted_member(body, "texts"), "texts");
  const std::string query = string_of(wanted_member(body, "query"), "query");
  ServerResponse response{.body = "["};
  for (const Rank& rank : ranks_of(call, model, query, texts, "texts", wishes).best) {
    if (response.body.size() > 1) response.body += ',';
    response.body += "{\"index\":" + std::to_string(rank.index);
    if (with_text) response.body += ",\"text\":" + json_text(texts[rank.index]);
    response.body += ",\"score\":";
    append_number(response.body, rank.score);
    response.body += '}';
  }
  response.body += ']';
  return response;
}

ServerResponse served_info(const Call& call) {
  const auto of_protocol = std::ranges::find_if(call.models, [](const auto& each) {
    return each->task() == kEmbeddingTask || each->task() == kRerankTask ||
           each->task() == name_of_value(Task::kTextClassification);
  });
  ServedModel& model = of_protocol == call.models.end() ? call.model() : **of_protocol;
  const ModelFacts facts = model.model(call.deadline).facts();
  ordered_json type = ordered_json::object();
  if (model.task() == kEmbeddingTask) {
    type["embedding"] = {{"pooling", facts.pooling}};
  } else {
    ordered_json& labels = type[model.task() == kRerankTask ? "reranker" : "classifier"];
    labels = {{"id2label", ordered_json::object()}, {"label2id", ordered_json::object()}};
    for (size_t i = 0; i < facts.labels.size(); ++i) {
      labels["id2label"][std::to_string(i)] = facts.labels[i];
      labels["label2id"][facts.labels[i]] = i;
    }
  }
  return json_response({{"model_id", model.name()},
                        {"model_sha", nullptr},
                        {"model_dtype", facts.dtype},
                        {"served_model_name", model.name()},
                        {"model_type", type},
                        {"max_concurrent_requests", call.options.max_connections},
                        {"max_input_length", facts.max_tokens},
                        {"max_batch_tokens", call.options.batch.max_batch_tokens},
                        {"max_batch_requests", nullptr},
                        {"max_client_batch_size", call.options.max_texts},
                        {"auto_truncate", facts.truncates},
                        {"tokenization_workers", call.options.max_connections},  // a request's thread tokenizes
                        {"version", BERT_VERSION},
                        {"sha", nullptr},
                        {"docker_label", nullptr},
                        {"task", model.task()}});
}

ServerResponse embed_refusal(const HttpError& error) {
  constexpr int kTooLarge = 413, kTooMany = 429, kInternal = 500, kUnready = 503;
  const bool text = dynamic_cast<const TextRefused*>(&error) != nullptr;
  const int status = text ? kTooLarge : error.status == kInternal ? kWrongModel : error.status;
  const char* type = dynamic_cast<const NothingAsked*>(&error) != nullptr ? "Empty"
                     : status == kWrongModel                              ? "Backend"
                     : status == kTooMany                                 ? "Overloaded"
                     : status == kUnready                                 ? "Unhealthy"
                                                                          : "Validation";
  return {.status = status, .body = json_text({{"error", error.what()}, {"error_type", type}}), .fields = error.fields};
}

}  // namespace bert
