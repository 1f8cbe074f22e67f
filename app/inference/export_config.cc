#include "app/inference/export_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "app/checkpoint/state.h"
#include "app/config/model_rules_json.h"
#include "app/interop/hugging_face_files.h"
#include "app/parse/bounded_json.h"
#include "data/io/error.h"

namespace bert {
namespace {

/// Calls visit(name, value) for each setting of a tokenizer that an export holds.
template <class Config, class Visit>
void visit_exported(Config& settings, const Visit& visit) {
  TokenizerConfig::visit_fields(settings, [&](const char* name, auto& value, auto&&...) {
    if (std::string_view(name) != "match_special_tokens") visit(name, value);
  });
}

/// Calls visit(name, value) for each field of a model.
template <class Config, class Visit>
void visit_model(Config& model, const Visit& visit) {
  BertConfig::visit_fields(model, [&](const char* name, auto& value, auto&&...) { visit(name, value); });
}

void read_member(const nlohmann::json& object, const char* key, const std::string& file, bool& value) {
  value = boolean_member(object, key, file);
}
void read_member(const nlohmann::json& object, const char* key, const std::string& file, std::optional<bool>& value) {
  value = object.at(key).is_null() ? std::nullopt : std::optional<bool>(boolean_member(object, key, file));
}
void read_member(const nlohmann::json& object, const char* key, const std::string& file, int64_t& value) {
  value = integer_member(object, key, file);
}
void read_member(const nlohmann::json& object, const char* key, const std::string& file, double& value) {
  value = number_member(object, key, file);
}
void read_member(const nlohmann::json& object, const char* key, const std::string& file, std::string& value) {
  value = string_member(object, key, file);
}

template <class Enum>
requires std::is_enum_v<Enum>
void read_member(const nlohmann::json& object, const char* key, const std::string& file, Enum& value) {
  const std::string& word = string_member(object, key, file);
  const std::optional<Enum> found = value_named<Enum>(word);
  if (!found) {
    throw DataError(
        fmt::format("{}: \"{}\" is \"{}\"; expected one of {}", file, key, word, fmt::join(names_of(value), ", ")));
  }
  value = *found;
}

/// Calls visit(name, value, bounds...) for each setting of a task's data but the list of labels, which id2label has.
template <class Data, class Visit>
void visit_task_data(Data& data, const Visit& visit) {
  TaskDataConfig::visit_fields(data, [&](const char* name, auto& value, const char* /*help*/, auto... bounds) {
    if constexpr (!std::is_same_v<std::remove_cvref_t<decltype(value)>, std::vector<std::string>>)
      visit(name, value, bounds...);
  });
}

TaskDataConfig task_data_of(const nlohmann::json& object, const std::string& file) {
  TaskDataConfig data;
  visit_task_data(data, [&](const char* name, auto& value, auto... bounds) {
    if (!object.contains(name)) return;
    read_member(object, name, file, value);
    if constexpr (sizeof...(bounds) == 2) {
      const auto inside = [&](auto low, auto high) {
        using Value = std::remove_cvref_t<decltype(value)>;
        return value >= static_cast<Value>(low) && value <= static_cast<Value>(high);
      };
      if (!inside(bounds...)) throw DataError(fmt::format("{}: \"{}\": {} is out of range", file, name, value));
    }
  });
  return data;
}

/// The values of id2label in the order of their ids.
std::vector<std::string> labels_of(const nlohmann::json& object, const std::string& file) {
  const nlohmann::json& names = member(object, "id2label", nlohmann::json::value_t::object, file);
  std::vector<std::string> labels;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string id = std::to_string(i);
    if (!names.contains(id)) {
      throw DataError(file + ": \"id2label\": want the ids from 0 to " + std::to_string(names.size() - 1) + ", " + id +
                      " is missing");
    }
    labels.push_back(string_member(names, id.c_str(), file + ": \"id2label\""));
  }
  return labels;
}

/// The only value of architectures.
std::string class_of(const nlohmann::json& object, const std::string& file) {
  const nlohmann::json& names = member(object, "architectures", nlohmann::json::value_t::array, file);
  if (names.size() != 1 || !names[0].is_string())
    throw DataError(file + ": \"architectures\": want one name, got " + names.dump());
  return names[0];
}

}  // namespace

std::string write_export_config(const ModelDescription& model, const std::string& vocabulary_hash) {
  nlohmann::ordered_json object;
  const auto write = [&](const char* name, const auto& value) { object[name] = name_or_value(value); };
  visit_model(model.config, write);
  object["model_type"] = "bert";
  object["architectures"] = {architecture_of(model)};
  if (!model.task.empty()) object["task"] = model.task;
  object["objective"] = name_of_value(model.objective);
  if (!vocabulary_hash.empty()) object["vocabulary_hash"] = vocabulary_hash;
  object["model_max_length"] = model.config.max_position_embeddings;
  if (model.task_data) {
    visit_task_data(*model.task_data, [&](const char* name, const auto& value, auto...) {
      object["task_data"][name] = name_or_value(value);
    });
  }
  write_rules(model, [&](const char* key, nlohmann::ordered_json value) { object[key] = std::move(value); });
  for (size_t i = 0; i < model.labels.size(); ++i) {
    object["id2label"][std::to_string(i)] = model.labels[i];
    object["label2id"][model.labels[i]] = i;
  }
  visit_exported(model.tokenizer, [&](const char* name, const auto& value) {
    if (std::string_view(name) == "final_sigma" && model.tokenizer.final_sigma) return;  // as older exports mean it
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, std::optional<bool>>) {
      object[name] = value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
    } else {
      write(name, value);
    }
  });
  return object.dump(2) + "\n";
}

ExportConfig read_export_config(const std::string& text, const std::string& file) {
  const nlohmann::json object = parse_bounded_json(text, file);
  if (!object.is_object()) throw DataError(file + ": want an object, got " + object.type_name());
  ExportConfig config;
  ModelDescription& model = config.model;
  const auto read = [&](const char* name, auto& value) {
    if (object.contains(name)) read_member(object, name, file, value);
  };
  visit_model(model.config, read);
  visit_exported(model.tokenizer, read);
  if (object.contains("objective")) {
    model.objective = parse_objective(string_member(object, "objective", file), file + ": \"objective\"");
  }
  if (object.contains("architectures")) model.masked_token_head = class_of(object, file) != "BertModel";
  if (object.contains("vocabulary_hash")) config.vocabulary_hash = string_member(object, "vocabulary_hash", file);
  if (object.contains("task")) model.task = string_member(object, "task", file);
  if (object.contains("task_data")) {
    const nlohmann::json& data = member(object, "task_data", nlohmann::json::value_t::object, file);
    model.task_data = task_data_of(data, file + ": \"task_data\"");
  }
  if (object.contains("id2label")) model.labels = labels_of(object, file);
  read_rules(object, file, model);
  return config;
}

}  // namespace bert
