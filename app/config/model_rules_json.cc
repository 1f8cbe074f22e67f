#include "app/config/model_rules_json.h"

#include <limits>

#include "app/parse/bounded_json.h"
#include "data/io/error.h"

namespace bert {
namespace {

/// Calls visit(key, flag) for each flag of a token.
template <class Token, class Visit>
void visit_flags(Token& token, const Visit& visit) {
  visit("single_word", token.single_word);
  visit("lstrip", token.lstrip);
  visit("rstrip", token.rstrip);
  visit("normalized", token.normalized);
  visit("special", token.special);
}

nlohmann::ordered_json sentence_json(const SentenceEncoder& encoder) {
  nlohmann::ordered_json json = {{"include_prompt", encoder.include_prompt},
                                 {"normalize", encoder.normalize},
                                 {"similarity_fn_name", name_of_value(encoder.similarity)},
                                 {"prompts", encoder.prompts},
                                 {"default_prompt_name", encoder.default_prompt},
                                 {"dense", nlohmann::ordered_json::array()}};
  for (const SentencePooling mode : encoder.pooling) json["pooling_mode"].push_back(name_of_value(mode));
  for (const SentenceDense& dense : encoder.dense) {
    json["dense"].push_back({{"in_features", dense.in_features},
                             {"out_features", dense.out_features},
                             {"bias", dense.bias},
                             {"activation", name_of_value(dense.activation)}});
  }
  return json;
}

/// Reads what sentence_json() wrote.
SentenceEncoder read_sentence(const nlohmann::json& object, const std::string& place) {
  using Type = nlohmann::json::value_t;
  SentenceEncoder encoder{.pooling = {},
                          .include_prompt = boolean_member(object, "include_prompt", place),
                          .normalize = boolean_member(object, "normalize", place),
                          .default_prompt = string_member(object, "default_prompt_name", place)};
  const auto named = [&]<class Enum>(const nlohmann::json& name, Enum& value) {
    const auto known = name.is_string() ? value_named<Enum>(name.get<std::string>()) : std::nullopt;
    if (!known) throw DataError(place + ": \"sentence_encoder\" has the unknown name " + as_text(name));
    value = *known;
  };
  named(member(object, "similarity_fn_name", Type::string, place), encoder.similarity);
  for (const nlohmann::json& mode : member(object, "pooling_mode", Type::array, place))
    named(mode, encoder.pooling.emplace_back());
  const nlohmann::json& prompts = member(object, "prompts", Type::object, place);
  for (const auto& item : prompts.items())
    encoder.prompts[item.key()] = string_member(prompts, item.key().c_str(), place);
  for (const nlohmann::json& dense : member(object, "dense", Type::array, place)) {
    encoder.dense.push_back({.in_features = integer_member(dense, "in_features", place),
                             .out_features = integer_member(dense, "out_features", place),
                             .bias = boolean_member(dense, "bias", place)});
    named(member(dense, "activation", Type::string, place), encoder.dense.back().activation);
  }
  return encoder;
}

}  // namespace

nlohmann::ordered_json added_tokens_json(const std::vector<AddedToken>& added, const std::vector<std::string>& tokens) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const AddedToken& token : added) {
    nlohmann::ordered_json object = {{"id", token.id}, {"content", tokens.at(static_cast<size_t>(token.id))}};
    visit_flags(token, [&](const char* key, bool flag) { object[key] = flag; });
    list.push_back(std::move(object));
  }
  return list;
}

AddedToken read_added_token(const nlohmann::json& object, int64_t id, const std::string& place) {
  if (!object.is_object()) throw DataError(place + ": an added token: want an object {...}, got " + object.type_name());
  if (id < 0 || id > std::numeric_limits<int32_t>::max())
    throw DataError(place + ": an added token has the id " + std::to_string(id));
  AddedToken token{.id = static_cast<int32_t>(id)};
  visit_flags(token, [&](const char* key, bool& flag) {
    const auto found = object.find(key);
    if (found != object.end() && !found->is_null()) flag = boolean_member(object, key, place);
  });
  return token;
}

std::vector<AddedToken> read_added_tokens(const nlohmann::json& list, const std::string& place) {
  if (!list.is_array()) throw DataError(place + ": added tokens: want a list, got " + list.type_name());
  std::vector<AddedToken> added;
  for (const nlohmann::json& object : list) {
    if (!object.is_object()) throw DataError(place + ": added tokens: want objects {...}");
    added.push_back(read_added_token(object, integer_member(object, "id", place), place));
  }
  return added;
}

void write_rules(const ModelDescription& model,
                 const std::function<void(const char* key, nlohmann::ordered_json value)>& set) {
  if (model.multi_label) set("problem_type", kMultiLabelProblem);
  if (!model.label_thresholds.empty()) set("label_thresholds", model.label_thresholds);
  if (model.null_threshold) set(kNullThresholdKey, *model.null_threshold);
  if (model.logit_scores) set("sentence_transformers", {{"activation_fn", kIdentityActivation}});
  if (model.max_tokens > 0) set("model_max_length", model.max_tokens);
  if (model.cut_at_begin) set("truncation_side", "left");
  if (!model.added_tokens.empty()) set("added_tokens", added_tokens_json(model.added_tokens, model.vocabulary));
  if (model.sentence) set("sentence_encoder", sentence_json(*model.sentence));
}

bool gives_logits(const nlohmann::json& object, const std::string& place) {
  const auto inside = object.find("sentence_transformers");
  const nlohmann::json& newer = inside != object.end() && inside->is_object() ? *inside : object;
  nlohmann::json name = newer.value("activation_fn", nlohmann::json());
  if (name.is_null()) name = object.value("sbert_ce_default_activation_function", nlohmann::json());  // before 4.0
  if (!name.is_string() || !name.get<std::string>().starts_with("torch.")) return false;  // as sentence-transformers
  const std::string activation = name;
  if (activation.ends_with(".Identity")) return true;
  if (activation.ends_with(".Sigmoid")) return false;
  throw DataError(place + ": the activation of a reranker is " + activation +
                  "; expected Sigmoid or Identity of torch");
}

void read_rules(const nlohmann::json& object, const std::string& place, ModelDescription& model) {
  if (object.contains("problem_type"))
    model.multi_label = string_member(object, "problem_type", place) == kMultiLabelProblem;
  model.label_thresholds = read_label_thresholds(object, place);
  model.null_threshold = read_null_threshold(object, place);
  model.logit_scores = gives_logits(object, place);
  model.max_tokens = read_max_length(object, "model_max_length", place);
  if (object.contains("truncation_side"))
    model.cut_at_begin = string_member(object, "truncation_side", place) == "left";
  if (object.contains("added_tokens")) model.added_tokens = read_added_tokens(object["added_tokens"], place);
  if (object.contains("sentence_encoder")) {
    model.sentence = read_sentence(member(object, "sentence_encoder", nlohmann::json::value_t::object, place), place);
  }
}

std::vector<double> read_label_thresholds(const nlohmann::json& object, const std::string& place) {
  std::vector<double> thresholds;
  if (!object.contains("label_thresholds")) return thresholds;
  for (const nlohmann::json& value : member(object, "label_thresholds", nlohmann::json::value_t::array, place)) {
    if (!value.is_number())
      throw DataError(place + ": \"label_thresholds\" has " + as_text(value) + "; expected a number for each label");
    thresholds.push_back(value.get<double>());
  }
  return thresholds;
}

std::optional<double> read_null_threshold(const nlohmann::json& object, const std::string& place) {
  if (!object.contains(kNullThresholdKey)) return std::nullopt;
  return number_member(object, kNullThresholdKey, place);
}

int64_t read_max_length(const nlohmann::json& object, const char* key, const std::string& place) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return 0;
  constexpr double kNoLimit = 1e9;  // far above any model
  const double length = number_member(object, key, place);
  if (length >= kNoLimit) return 0;
  constexpr int64_t kFewest = 3;  // [CLS], a token and [SEP]
  if (length < static_cast<double>(kFewest))
    throw DataError(place + ": \"" + key + "\" is " + as_text(*found) + "; expected " + std::to_string(kFewest) +
                    " tokens or more");
  return static_cast<int64_t>(length);
}

}  // namespace bert
