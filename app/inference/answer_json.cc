#include "app/inference/answer_json.h"

#include <torch/types.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace bert {
namespace {

/// The values of an fp32 tensor as nested lists of its shape.
nlohmann::ordered_json lists_of(const torch::Tensor& tensor) {
  const torch::Tensor values = tensor.to(torch::kCPU).contiguous();
  if (values.dim() < 2) {
    return std::vector<float>(values.const_data_ptr<float>(), values.const_data_ptr<float>() + values.numel());
  }
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (int64_t i = 0; i < values.size(0); ++i) list.push_back(lists_of(values[i]));
  return list;
}

}  // namespace

nlohmann::ordered_json to_json(const MaskFilling& filling) {
  nlohmann::ordered_json masks = nlohmann::ordered_json::array();
  for (const auto& fillers : filling.masks) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Filler& f : fillers)
      list.push_back({{"score", f.score}, {"token", f.token}, {"token_str", f.token_str}, {"sequence", f.sequence}});
    masks.push_back(std::move(list));
  }
  return {{"text", filling.text}, {"fillers", filling.masks.size() == 1 ? masks[0] : masks}};
}

nlohmann::ordered_json to_json(const std::string& text, const Features& features) {
  nlohmann::ordered_json answer = {{"text", text}, {"tokens", features.tokens}};
  if (features.pooler_output.defined()) answer["pooler_output"] = lists_of(features.pooler_output);
  answer["last_hidden_state"] = lists_of(features.last_hidden_state);
  return answer;
}

nlohmann::ordered_json embedding_json(const std::string& text, const at::Tensor& embedding) {
  return {{"text", text}, {"embedding", lists_of(embedding)}};
}

nlohmann::ordered_json hidden_states_json(const std::string& text, const std::vector<std::string>& tokens,
                                          const at::Tensor& hidden_states) {
  return {{"text", text}, {"tokens", tokens}, {"hidden_states", lists_of(hidden_states)}};
}

namespace {

nlohmann::ordered_json list_of(const std::vector<LabelScore>& scores) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const LabelScore& each : scores)
    list.push_back({{"label", each.label.empty() ? "LABEL_0" : each.label}, {"score", each.score}});
  return list;
}

nlohmann::ordered_json list_of(const std::vector<Entity>& entities, Aggregation aggregation) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Entity& entity : entities) {
    nlohmann::ordered_json& object = list.emplace_back();
    object[aggregation == Aggregation::kNone ? "entity" : "entity_group"] = entity.label;
    object["score"] = entity.score;
    if (aggregation == Aggregation::kNone) object["index"] = entity.index;
    object["word"] = entity.word;
    object["start"] = entity.begin;
    object["end"] = entity.end;
  }
  return list;
}

}  // namespace

nlohmann::ordered_json to_json(const EncodedInput& input, const TextScores& answer) {
  nlohmann::ordered_json result = {{"text", input.input.text}};
  if (answer.form == TextScores::Form::kList) {
    result["labels"] = list_of(answer.scores);
  } else if (answer.form == TextScores::Form::kBest) {
    result["label"] = answer.scores.front().label;
    result["score"] = answer.scores.front().score;
  } else if (answer.scores.size() == 1) {
    result["value"] = answer.scores.front().score;
  } else {
    for (const LabelScore& each : answer.scores) result["values"].push_back(each.score);
  }
  return result;
}

nlohmann::ordered_json to_json(const EncodedInput& input, const TaggedText& answer) {
  const Aggregation aggregation = input.options.aggregation;
  if (aggregation != Aggregation::kNone)
    return {{"text", input.input.text}, {"entities", list_of(answer.entities, aggregation)}};
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const WordLabel& word : answer.words) {
    list.push_back(
        {{"word", word.word}, {"label", word.label}, {"score", word.score}, {"start", word.begin}, {"end", word.end}});
  }
  return {{"text", input.input.text}, {"words", std::move(list)}};
}

nlohmann::ordered_json to_json(const EncodedInput& input, const std::vector<ExtractedAnswer>& answers) {
  const auto fields_of = [](const ExtractedAnswer& each) {
    return nlohmann::ordered_json({{"answer", each.answer},
                                   {"score", each.score},
                                   {"span_probability", each.span_probability},
                                   {"start", each.begin},
                                   {"end", each.end}});
  };
  nlohmann::ordered_json result = {{"text", input.input.text}, {"question", input.input.second}};
  if (input.options.top_k.value_or(1) == 1) {
    result.update(fields_of(answers.front()));
    return result;
  }
  nlohmann::ordered_json& list = result["answers"] = nlohmann::ordered_json::array();
  for (const ExtractedAnswer& each : answers) list.push_back(fields_of(each));
  return result;
}

nlohmann::ordered_json pipeline_json(const EncodedInput& /*input*/, const TextScores& answer) {
  std::vector<LabelScore> scores = answer.scores;
  std::stable_sort(scores.begin(), scores.end(), [](const auto& x, const auto& y) { return x.score > y.score; });
  return list_of(scores);
}

nlohmann::ordered_json pipeline_json(const EncodedInput& input, const TaggedText& answer) {
  return list_of(answer.entities, input.options.aggregation);
}

nlohmann::ordered_json pipeline_json(const EncodedInput& /*input*/, const std::vector<ExtractedAnswer>& answers) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ExtractedAnswer& each : answers) {
    list.push_back(
        {{"score", each.span_probability}, {"start", each.begin}, {"end", each.end}, {"answer", each.answer}});
  }
  return list.size() == 1 ? list[0] : list;
}

}  // namespace bert
