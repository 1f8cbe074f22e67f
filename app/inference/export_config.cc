#include "app/inference/export_config.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "app/checkpoint/state.h"
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
void read_member(const nlohmann::json& object, const char* key, const std::string& file, int64_t& value) {
  value = integer_member(object, key, file);
}
void read_member(const nlohmann::json& object, const char* key, const std::string& file, double& value) {
  value = number_member(object, key, file);
}
void read_member(const nlohmann::json& object, const char* key, const std::string& file, std::string& value) {
  value = string_member(object, key, file);
}

}  // namespace

std::string write_export_config(const ExportConfig& config) {
  nlohmann::ordered_json object;
  const auto write = [&](const char* name, const auto& value) { object[name] = value; };
  visit_model(config.model, write);
  object["model_type"] = "bert";
  object["architectures"] = {has_pairs(config.objective) ? "BertForPreTraining" : "BertForMaskedLM"};
  object["objective"] = name_of_value(config.objective);
  visit_exported(config.tokenizer, write);
  return object.dump(2) + "\n";
}

ExportConfig read_export_config(const std::string& text, const std::string& file) {
  const nlohmann::json object = parse_bounded_json(text, file);
  if (!object.is_object()) throw DataError(file + ": want an object, got " + object.type_name());
  ExportConfig config;
  const auto read = [&](const char* name, auto& value) {
    if (object.contains(name)) read_member(object, name, file, value);
  };
  visit_model(config.model, read);
  visit_exported(config.tokenizer, read);
  if (object.contains("objective")) {
    config.objective = parse_objective(string_member(object, "objective", file), file + ": \"objective\"");
  }
  return config;
}

}  // namespace bert
