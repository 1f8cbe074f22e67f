#include "app/serve/protocols/openai.h"

#include <fmt/format.h>

#include <array>
#include <ctime>
#include <string_view>
#include <utility>

#include "app/serve/protocols/json_body.h"
#include "app/serve/protocols/number_text.h"

namespace bert {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::array<const char*, 5> kParameters = {"input", "model", "encoding_format", "dimensions", "user"};

ordered_json description_of(const ServedModel& model) {
  static const std::time_t kStart = std::time(nullptr);  // of the server, about
  return {{"id", model.name()}, {"object", "model"}, {"created", kStart}, {"owned_by", "bert"}};
}

}  // namespace

ServerResponse openai_embeddings(const Call& call) {
  const json body = parse_body(call.request.body);
  check_keys(body, "body", {kParameters.begin(), kParameters.end()});
  const json* name = find_member(body, "model");
  ServedModel& model = model_for(call, kEmbeddingTask, 400, name == nullptr ? "" : string_of(*name, "model"));
  const json* format = find_member(body, "encoding_format");
  const std::string encoding = format == nullptr ? "float" : string_of(*format, "encoding_format");
  if (encoding != "float" && encoding != "base64")
    throw HttpError(422, "encoding_format: want float or base64, got " + json_text(encoding));
  AnswerOptions wishes{.normalize = true};
  if (const json* dimensions = find_member(body, "dimensions"); dimensions != nullptr)
    wishes.dimensions = integer_of(*dimensions, "dimensions", model.model(call.deadline).facts().dimensions);
  Answers answers = model.ask(texts_or_ids(wanted_member(body, "input"), "input"), wishes, call.deadline);
  const size_t count = answers.all.size();
  return list_response(R"({"object":"list","data":[)", count,
                       [all = std::move(answers.all), base64 = encoding == "base64"](size_t i, std::string& out) {
                         out += fmt::format(R"({{"object":"embedding","index":{},"embedding":)", i);
                         if (base64) {
                           out += '"' + base64_of(all[i]->numbers()) + '"';
                         } else {
                           append_numbers(out, all[i]->numbers());
                         }
                         out += '}';
                       },
                       fmt::format(R"(],"model":{},"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})",
                                   json_text(model.name()), answers.tokens, answers.tokens));
}

ServerResponse openai_models(const Call& call) {
  ordered_json data = ordered_json::array();
  for (const auto& model : call.models) data.push_back(description_of(*model));
  return json_response({{"object", "list"}, {"data", data}});
}

ServerResponse openai_model(const Call& call) { return json_response(description_of(model_named(call, call.name))); }

ServerResponse openai_refusal(const HttpError& error) {
  constexpr int kBadRequest = 400, kNoToken = 401, kNotFound = 404, kUnanswerable = 422, kTooMany = 429,
                kInternal = 500;
  const int status = error.status == kUnanswerable ? kBadRequest : error.status;
  const std::string reason = error.what();
  ordered_json parameter;
  const std::string_view first = std::string_view(reason).substr(0, reason.find_first_of("[:"));
  for (const char* known : kParameters)
    if (first == known) parameter = known;
  const ordered_json code = status == kNoToken    ? "invalid_api_key"
                            : status == kNotFound ? "model_not_found"
                            : status == kTooMany  ? "rate_limit_exceeded"
                                                  : ordered_json();
  const char* type = status >= kInternal ? "server_error" : status == kTooMany ? "requests" : "invalid_request_error";
  return {.status = status,
          .body = json_text({{"error", {{"message", reason}, {"type", type}, {"param", parameter}, {"code", code}}}}),
          .fields = error.fields};
}

}  // namespace bert
