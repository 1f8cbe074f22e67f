#include "app/interop/hugging_face_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "app/checkpoint/state.h"
#include "app/config/model_config.h"
#include "app/config/model_rules_json.h"
#include "app/interop/hugging_face_files.h"
#include "app/parse/bounded_json.h"
#include "app/parse/json_tree.h"
#include "app/system/errors.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/tasks/task_definition.h"

namespace bert {
namespace {

using nlohmann::json;

// Well-known relatives of BERT, and the differences that keep their weights from being BERT's.
constexpr std::pair<std::string_view, const char*> kRelatives[] = {
    {"roberta", "its positions begin after the id of [PAD], and its vocabulary is byte-level BPE"},
    {"xlm-roberta", "its positions begin after the id of [PAD], and its vocabulary is a SentencePiece model"},
    {"camembert", "its positions begin after the id of [PAD], and its vocabulary is a SentencePiece model"},
    {"distilbert", "it has no segments and no pooler"},
    {"albert", "its layers share one set of weights, and its embeddings are narrower"},
    {"electra", "its discriminator tells replaced tokens, and its embeddings may be narrower"},
    {"deberta", "its attention has relative positions"},
    {"deberta-v2", "its attention has relative positions"},
    {"mobilebert", "its layers have bottlenecks"},
    {"megatron-bert", "its layers normalise their inputs"},
    {"roformer", "its positions are rotary"},
    {"modernbert", "its positions are rotary"},
    {"nomic_bert", "its positions are rotary"},
    {"xlnet", "it predicts tokens in permuted orders"},
    {"bert-generation", "it has no segments"},
    {"ernie", "it has embeddings of tasks"},
    {"layoutlm", "it has embeddings of places on a page"},
};

/// Throws DataError unless config.json says BERT, or says nothing, as the oldest files.
void check_model_type(const json& config, const std::string& path) {
  if (config.contains("model_type")) {
    const std::string& type = string_member(config, "model_type", path);
    if (type == "bert") return;
    for (const auto& [relative, reason] : kRelatives) {
      if (type == relative)
        throw DataError(fmt::format("{}: \"model_type\" is {}: not BERT's architecture: {}", path, type, reason));
    }
    throw DataError(fmt::format("{}: \"model_type\" is {}; expected bert", path, as_text(json(type))));
  }
  if (!config.contains("architectures") || config["architectures"].is_null()) return;
  for (const json& name : member(config, "architectures", json::value_t::array, path)) {
    if (name.is_string() && name.get_ref<const std::string&>().starts_with("Bert")) continue;
    throw DataError(fmt::format("{}: \"architectures\" has {}; expected models of BERT, such as BertForPreTraining",
                                path, as_text(name)));
  }
}

/// Throws DataError for settings with which the same weights mean another model.
void check_variants(const json& config, const std::string& path) {
  if (config.contains("position_embedding_type")) {
    if (const std::string& type = string_member(config, "position_embedding_type", path); type != "absolute") {
      throw DataError(
          fmt::format("{}: \"position_embedding_type\" is {}; expected absolute: relative positions are "
                      "another architecture",
                      path, as_text(json(type))));
    }
  }
  for (const char* key : {"is_decoder", "add_cross_attention"}) {
    if (config.contains(key) && boolean_member(config, key, path))
      throw DataError(fmt::format("{}: \"{}\" is true; expected false: an encoder sees both directions", path, key));
  }
  if (config.contains("pruned_heads") && !config["pruned_heads"].empty())
    throw DataError(path + ": \"pruned_heads\" is not empty; expected the heads of every layer");
  if (config.contains("quantization_config") && !config["quantization_config"].is_null())
    throw DataError(path + ": has a \"quantization_config\"; expected weights in fp32, fp16 or bf16");
}

/// id2label in the order of the ids; empty if the file has none.
std::vector<std::string> labels_of(const json& config, const std::string& path) {
  std::vector<std::string> labels;
  if (!config.contains("id2label") || config["id2label"].is_null()) return labels;
  const json& names = member(config, "id2label", json::value_t::object, path);
  for (size_t i = 0; i < names.size(); ++i) {
    const auto name = names.find(std::to_string(i));
    if (name == names.end() || !name->is_string())
      throw DataError(
          fmt::format("{}: \"id2label\" has {} labels, and none with the id {}; expected a text for each id", path,
                      names.size(), i));
    labels.push_back(name->get<std::string>());
  }
  return labels;
}

/// Sets the task of a fine-tuned class; it stays "" if the file does not name one. The key finetuning_task, which
/// transformers has for that, chooses between the tasks of one class.
void read_task(const json& config, ModelDescription& result) {
  const json problem = config.value("problem_type", json()), finetuned_on = config.value("finetuning_task", json());
  result.multi_label = problem == kMultiLabelProblem;
  const json classes = config.value("architectures", json::array());
  const std::string name =
      classes.is_array() && !classes.empty() && classes[0].is_string() ? classes[0].get<std::string>() : "";
  const std::string task = finetuned_on.is_string() ? finetuned_on.get<std::string>() : "";
  if (const auto kind = kind_of_task(task); kind && architecture_of(*kind) == name) {
    result.task = task;
  } else if (name == architecture_of(TaskKind::kClassification)) {
    result.task = problem == "regression" ? "text-regression"
                  : result.multi_label    ? kMultiLabelTask
                                          : "text-classification";
  } else if (name == kMarkerArchitecture) {
    result.task = "text-classification";
  } else if (name == architecture_of(TaskKind::kTokenClassification)) {
    result.task = "ner";
  } else if (name == architecture_of(TaskKind::kQuestionAnswering)) {
    result.task = "squad-v1";
  } else if (name == architecture_of(TaskKind::kMultipleChoice)) {
    result.task = "swag";
  }
}

}  // namespace

ModelDescription read_hugging_face_config(const std::string& path) {
  const std::string text = read_file(path, kMaxJsonBytes);
  const json config = parse_bounded_json(text, path);
  if (!config.is_object()) throw DataError(path + ": want an object {...}, got " + config.type_name());
  check_model_type(config, path);
  check_variants(config, path);
  ModelDescription result;
  result.config.hidden_act = Activation::kGelu;  // transformers' default; Google's files always have the key
  try {
    read_model_config(text, path, result.config);
  } catch (const ConfigError& error) {
    throw DataError(error.what());
  }
  if (config.contains("objective") &&
      parse_objective(string_member(config, "objective", path), path + ": \"objective\"") == Objective::kSop)
    result.objective = Objective::kSop;
  read_task(config, result);
  result.labels = labels_of(config, path);
  result.label_thresholds = read_label_thresholds(config, path);
  result.null_threshold = read_null_threshold(config, path);
  if (result.labels.size() == 1) result.logit_scores = gives_logits(config, path);
  return result;
}

}  // namespace bert
