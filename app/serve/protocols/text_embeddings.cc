#include "app/serve/protocols/text_embeddings.h"

#include <cmath>
#include <utility>

#include "app/serve/protocols/json_body.h"
#include "app/serve/protocols/number_text.h"
#include "app/serve/protocols/pipelines.h"
#include "app/serve/protocols/rerank.h"

namespace bert {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int kWrongModel = 424, kUnanswerable = 422;

/// The body, with the members of "parameters" beside the others, as Hugging Face's clients may send them.
json embed_body(const Call& call) {
  json body = parse_body(call.request.body);
  if (!body.is_object()) return body;
  const json* inside = find_member(body, "parameters");
  if (inside != nullptr && !inside->is_object()) throw HttpError(kUnanswerable, "parameters: want an object");
  if (inside != nullptr) {
    const json parameters = *inside;
    for (const auto& [key, value] : parameters.items()) body[key] = value;
  }
  body.erase("parameters");
  body.erase("options");  // of Hugging Face's inference API, without effect
  return body;
}

/// truncate and truncation_direction.
void read_truncation(const json& body, AnswerOptions& wishes) {
  if (find_member(body, "truncate") != nullptr)
    wishes.long_texts = boolean_member_of(body, "truncate", true) ? LongTexts::kTruncate : LongTexts::kRefuse;
  const json* side = find_member(body, "truncation_direction");
  if (side != nullptr && *side != "Right" && *side != "right")
    throw HttpError(kUnanswerable, "truncation_direction: want Right; the model's tokenizer says which end is cut");
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
  check_keys(body, "body", {"inputs", "normalize", "truncate", "truncation_direction", "prompt_name", "dimensions"});
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
  ServedModel& model = model_for(call, kEmbeddingTask, kWrongModel);
  check_keys(body, "body", {"inputs", "truncate", "truncation_direction", "prompt_name"});
  const json& inputs = wanted_member(body, "inputs");
  check_keys(inputs, "inputs", {"source_sentence", "sentences"});
  AnswerOptions wishes{.normalize = true};
  read_truncation(body, wishes);
  read_prompt(body, wishes);
  Texts texts{.inputs = {{.text = string_of(wanted_member(inputs, "source_sentence"), "inputs: source_sentence")}}};
  for (const std::string& sentence : texts_of(wanted_member(inputs, "sentences"), "inputs: sentences"))
    texts.inputs.push_back({.text = sentence});
  if (texts.inputs.size() < 2) throw HttpError(kUnanswerable, "inputs: sentences: want one sentence or more");
  const Answers answers = model.ask(texts, wishes, call.deadline);
  std::vector<float> cosines;
  for (size_t i = 1; i < answers.all.size(); ++i)
    cosines.push_back(static_cast<float>(dot(answers.all[0]->numbers(), answers.all[i]->numbers())));
  ServerResponse response;
  append_numbers(response.body, cosines);
  return response;
}

}  // namespace

ServerResponse embed_root(const Call& call) {
  if (call.model().task() == kRerankTask) return rank_texts(call);
  if (call.model().task() != kEmbeddingTask) return hugging_face_answers(call);
  const json body = embed_body(call);
  const json* inputs = body.is_object() ? find_member(body, "inputs") : nullptr;
  return inputs != nullptr && inputs->is_object() ? similarities_of(call, body) : vectors_of(call, body);
}

ServerResponse embed_texts(const Call& call) { return vectors_of(call, embed_body(call)); }

ServerResponse similar_sentences(const Call& call) { return similarities_of(call, embed_body(call)); }

ServerResponse embed_tokens(const Call& call) {
  ServedModel& model = model_for(call, kEmbeddingTask, kWrongModel);
  const json body = embed_body(call);
  check_keys(body, "body", {"inputs", "truncate", "truncation_direction", "prompt_name"});
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
  if (body.is_object() && body.contains("documents")) return cohere_rerank(call);
  ServedModel& model = model_for(call, kRerankTask, kWrongModel);
  check_keys(body, "body", {"query", "texts", "raw_scores", "return_text", "truncate", "truncation_direction"});
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
  ServedModel& model = call.model();
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
                        {"model_type", type},
                        {"max_input_length", facts.max_tokens},
                        {"max_batch_tokens", call.options.batch.max_batch_tokens},
                        {"max_client_batch_size", call.options.max_texts},
                        {"auto_truncate", facts.truncates},
                        {"task", model.task()}});
}

ServerResponse embed_refusal(const HttpError& error) {
  constexpr int kTooLarge = 413, kTooMany = 429, kInternal = 500, kUnready = 503;
  const bool text = dynamic_cast<const TextRefused*>(&error) != nullptr;
  const int status = text ? kTooLarge : error.status == kInternal ? kWrongModel : error.status;
  const char* type = status == kWrongModel ? "Backend"
                     : status == kTooMany  ? "Overloaded"
                     : status == kUnready  ? "Unhealthy"
                                           : "Validation";
  return {.status = status, .body = json_text({{"error", error.what()}, {"error_type", type}}), .fields = error.fields};
}

}  // namespace bert
