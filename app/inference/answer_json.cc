#include "app/inference/answer_json.h"

#include <torch/types.h>

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

nlohmann::ordered_json to_json(const TaskInput& input, const std::vector<LabelScore>& best, int64_t top_k) {
  if (best.front().label.empty()) return {{"text", input.text}, {"value", best.front().score}};
  if (top_k == 1) return {{"text", input.text}, {"label", best.front().label}, {"score", best.front().score}};
  nlohmann::ordered_json labels = nlohmann::ordered_json::array();
  for (const LabelScore& each : best) labels.push_back({{"label", each.label}, {"score", each.score}});
  return {{"text", input.text}, {"labels", std::move(labels)}};
}

nlohmann::ordered_json to_json(const TaskInput& input, const std::vector<WordLabel>& words, int64_t /*top_k*/) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const WordLabel& word : words)
    list.push_back({{"word", word.word}, {"label", word.label}, {"score", word.score}});
  return {{"text", input.text}, {"words", std::move(list)}};
}

nlohmann::ordered_json to_json(const TaskInput& input, const std::vector<ExtractedAnswer>& answers, int64_t top_k) {
  const auto fields_of = [](const ExtractedAnswer& each) {
    return nlohmann::ordered_json(
        {{"answer", each.answer}, {"score", each.score}, {"start", each.begin}, {"end", each.end}});
  };
  nlohmann::ordered_json result = {{"text", input.text}, {"question", input.second}};
  if (top_k == 1) {
    result.update(fields_of(answers.front()));
    return result;
  }
  nlohmann::ordered_json& list = result["answers"] = nlohmann::ordered_json::array();
  for (const ExtractedAnswer& each : answers) list.push_back(fields_of(each));
  return result;
}

}  // namespace bert
