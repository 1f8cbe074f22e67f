#include "app/interop/hugging_face_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "app/config/model_rules_json.h"
#include "data/tokenizer/vocabulary.h"

namespace bert {
namespace {

using Json = nlohmann::ordered_json;

std::string as_file(const Json& json) {
  return json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

const char* torch_dtype(std::string_view dtype) {
  if (dtype == "F16") return "float16";
  if (dtype == "BF16") return "bfloat16";
  return dtype == "F64" ? "float64" : "float32";
}

std::string config_file(const ModelDescription& model, const std::string& dtype, int64_t pad_id) {
  Json config = {{"architectures", Json::array({architecture_of(model)})}, {"model_type", "bert"}};
  BertConfig::visit_fields(
      model.config, [&](const char* name, const auto& value, auto&&...) { config[name] = name_or_value(value); });
  config["objective"] = name_of_value(model.objective);
  const bool numbers = !model.task.empty() && task_definition(model.task).kind == TaskKind::kRegression;
  // num_labels of transformers is the number of labels.
  const std::vector<std::string> labels =
      numbers && model.labels.empty() ? std::vector<std::string>{"LABEL_0"} : model.labels;
  for (size_t i = 0; i < labels.size(); ++i) {
    config["id2label"][std::to_string(i)] = labels[i];
    config["label2id"][labels[i]] = i;
  }
  if (numbers) config["problem_type"] = "regression";
  if (model.multi_label && labels.size() > 1) config["problem_type"] = kMultiLabelProblem;
  if (!model.label_thresholds.empty()) config["label_thresholds"] = model.label_thresholds;
  if (model.null_threshold) config[kNullThresholdKey] = *model.null_threshold;
  if (model.logit_scores) config["sentence_transformers"] = {{"activation_fn", kIdentityActivation}};
  if (!model.task.empty()) config["finetuning_task"] = model.task;
  config["pad_token_id"] = pad_id;
  config["position_embedding_type"] = "absolute";
  config["torch_dtype"] = torch_dtype(dtype);
  return as_file(config);
}

Json special_tokens_map(const ModelDescription& model) {
  Json map = Json::object();
  for (const auto& [key, token] : kSpecialTokens) map[key] = token;
  for (const AddedToken& token : model.added_tokens) {
    if (token.special) map["additional_special_tokens"].push_back(model.vocabulary[static_cast<size_t>(token.id)]);
  }
  return map;
}

/// The added tokens and BERT's special tokens, by id.
std::vector<AddedToken> all_added(const ModelDescription& model) {
  std::vector<AddedToken> all = model.added_tokens;
  const Vocabulary vocabulary(model.vocabulary);
  for (const int32_t id : vocabulary.special_ids()) {
    const bool there = std::any_of(all.begin(), all.end(), [id](const AddedToken& token) { return token.id == id; });
    if (!there) all.push_back({.id = id, .special = true});
  }
  std::sort(all.begin(), all.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return all;
}

/// A setting as transformers writes it: null is its default.
Json nullable(const std::optional<bool>& setting) { return setting ? Json(*setting) : Json(); }

std::string tokenizer_config_file(const ModelDescription& model) {
  Json config = {{"tokenizer_class", "BertTokenizer"},
                 {"do_lower_case", model.tokenizer.do_lower_case},
                 {"do_basic_tokenize", true},
                 {"strip_accents", nullable(model.tokenizer.strip_accents)},
                 {"tokenize_chinese_chars", model.tokenizer.tokenize_chinese_chars},
                 {"model_max_length", most_tokens(model)}};
  if (model.cut_at_begin) config["truncation_side"] = "left";
  config.update(special_tokens_map(model));
  if (model.added_tokens.empty()) return as_file(config);
  for (Json& token : added_tokens_json(all_added(model), model.vocabulary)) {
    const std::string id = std::to_string(token["id"].get<int64_t>());
    token.erase("id");
    config["added_tokens_decoder"][id] = std::move(token);
  }
  return as_file(config);
}

/// The template of `parts`, each a special token or a sequence, with its segment.
Json template_of(const std::vector<std::pair<std::string, int>>& parts) {
  Json result = Json::array();
  for (const auto& [name, segment] : parts) {
    const char* const kind = name.size() == 1 ? "Sequence" : "SpecialToken";
    Json part;
    part[kind] = {{"id", name}, {"type_id", segment}};
    result.push_back(std::move(part));
  }
  return result;
}

std::string tokenizer_file(const ModelDescription& model, const Vocabulary& vocabulary) {
  Json special = Json::object();
  for (const char* token : {"[CLS]", "[SEP]"})
    special[token] = {{"id", token}, {"ids", Json::array({vocabulary.find(token)})}, {"tokens", Json::array({token})}};
  const Json head = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", added_tokens_json(all_added(model), model.vocabulary)},
                     {"normalizer",
                      {{"type", "BertNormalizer"},
                       {"clean_text", true},
                       {"handle_chinese_chars", model.tokenizer.tokenize_chinese_chars},
                       {"strip_accents", nullable(model.tokenizer.strip_accents)},
                       {"lowercase", model.tokenizer.do_lower_case}}},
                     {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                     {"post_processor",
                      {{"type", "TemplateProcessing"},
                       {"single", template_of({{"[CLS]", 0}, {"A", 0}, {"[SEP]", 0}})},
                       {"pair", template_of({{"[CLS]", 0}, {"A", 0}, {"[SEP]", 0}, {"B", 1}, {"[SEP]", 1}})},
                       {"special_tokens", special}}},
                     {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
                     {"model",
                      {{"type", "WordPiece"},
                       {"unk_token", "[UNK]"},
                       {"continuing_subword_prefix", "##"},
                       {"max_input_chars_per_word", model.tokenizer.max_input_chars_per_word}}}};
  // An object of ordered_json takes quadratic time to fill, so the vocabulary is written here.
  std::string text = as_file(head);
  std::string tokens = ",\n    \"vocab\": {";
  for (int64_t id = 0; id < vocabulary.base_size(); ++id) {
    tokens += id == 0 ? "\n      " : ",\n      ";
    tokens += Json(vocabulary.token(id)).dump(-1, ' ', /*ensure_ascii=*/false) + ": " + std::to_string(id);
  }
  tokens += "\n    }";
  text.insert(text.rfind("\n  }\n}\n"), tokens);
  return text;
}

}  // namespace

const char* architecture_of(TaskKind kind) {
  switch (kind) {
    case TaskKind::kTokenClassification:
      return "BertForTokenClassification";
    case TaskKind::kQuestionAnswering:
      return "BertForQuestionAnswering";
    case TaskKind::kMultipleChoice:
      return "BertForMultipleChoice";
    case TaskKind::kEmbedding:
      return "BertModel";
    case TaskKind::kClassification:
    case TaskKind::kRegression:
      break;
  }
  return "BertForSequenceClassification";
}

const char* architecture_of(const ModelDescription& model) {
  if (model.start_markers) return kMarkerArchitecture;
  if (!model.task.empty()) return architecture_of(task_definition(model.task).kind);
  if (!model.masked_token_head) return "BertModel";
  return has_pairs(model.objective) ? "BertForPreTraining" : "BertForMaskedLM";
}

std::map<std::string, std::string> hugging_face_files(const ModelDescription& model, const std::string& dtype) {
  if (model.vocabulary.empty() || !model.tokenizer_model.empty())
    return {{"config.json", config_file(model, dtype, 0)}};
  const Vocabulary vocabulary(model.vocabulary, "vocabulary", model.added_tokens);
  std::string lines;
  Json added = Json::object();
  for (int64_t id = 0; id < vocabulary.size(); ++id) {
    if (id < vocabulary.base_size()) {
      lines.append(vocabulary.token(id)).append("\n");
    } else {
      added[vocabulary.token(id)] = id;
    }
  }
  std::map<std::string, std::string> files = {{"config.json", config_file(model, dtype, vocabulary.pad_id())},
                                              {"vocab.txt", lines},
                                              {"tokenizer_config.json", tokenizer_config_file(model)},
                                              {"special_tokens_map.json", as_file(special_tokens_map(model))}};
  if (!added.empty()) files["added_tokens.json"] = as_file(added);
  const std::unordered_set<std::string_view> distinct(vocabulary.tokens().begin(), vocabulary.tokens().end());
  if (static_cast<int64_t>(distinct.size()) == vocabulary.size())
    files["tokenizer.json"] = tokenizer_file(model, vocabulary);
  return files;
}

}  // namespace bert
