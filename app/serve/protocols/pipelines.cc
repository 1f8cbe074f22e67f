#include "app/serve/protocols/pipelines.h"

#include <utility>

#include "app/serve/protocols/json_body.h"
#include "app/serve/protocols/predict_request.h"

namespace bert {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

ServerResponse answers_of(const Call& call, ServedModel& served, json body, bool hugging_face) {
  const Model& model = served.model(call.deadline);
  PredictRequest parsed = parse_predict_request(
      std::move(body), {.max_texts = call.options.max_texts,
                        .form = model.form(),
                        .parameters = model.parameters(),
                        .defaults = hugging_face ? model.hugging_face_defaults() : model.defaults(),
                        .find_token = [&](const std::string& token) { return model.find_token(token); },
                        .hugging_face = hugging_face});
  const bool list = parsed.list;
  Answers answers = served.ask({.inputs = std::move(parsed.inputs), .list = list}, parsed.options, call.deadline);
  const auto value_of = [hugging_face](const Answer& answer) {
    return hugging_face ? answer.as_hugging_face() : answer.as_predict();
  };
  if (!list) {
    ordered_json answer = value_of(*answers.all[0]);
    const bool alone = hugging_face && model.hugging_face_lists_one();
    return json_response(alone ? ordered_json::array({std::move(answer)}) : std::move(answer));
  }
  const size_t count = answers.all.size();
  return list_response(
      "[", count,
      [all = std::move(answers.all), value_of](size_t i, std::string& out) mutable {
        out += json_text(value_of(*all[i]));
        all[i].reset();
      },
      "]");
}

}  // namespace

ServerResponse own_answers(const Call& call, json body) {
  return answers_of(call, call.model(), std::move(body), /*hugging_face=*/false);
}

ServerResponse hugging_face_answers(const Call& call, json body) {
  return answers_of(call, model_named(call, call.name), std::move(body), /*hugging_face=*/true);
}

ServerResponse tokens_of_texts(const Call& call) {
  const Model& model = call.model().model(call.deadline);
  const PredictRequest parsed =
      parse_predict_request(parse_body(call.request.body), {.max_texts = call.options.max_texts});
  ordered_json list = ordered_json::array();
  for (const ModelInput& input : parsed.inputs) {
    const TextTokens tokens = model.tokenize(input);
    list.push_back(
        {{"text", input.text}, {"tokens", tokens.tokens}, {"ids", tokens.ids}, {"truncated", tokens.truncated}});
  }
  return json_response(parsed.list ? list : list[0]);
}

}  // namespace bert
