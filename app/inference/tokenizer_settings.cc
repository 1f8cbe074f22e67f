#include "app/inference/tokenizer_settings.h"

#include <string_view>

#include "app/parse/bounded_json.h"

namespace bert {
namespace {

/// Calls visit(name, value) for each setting that an export holds.
template <class Config, class Visit>
void visit_exported(Config& settings, const Visit& visit) {
  TokenizerConfig::visit_fields(settings, [&](const char* name, auto& value, auto&&...) {
    if (std::string_view(name) != "match_special_tokens") visit(name, value);
  });
}

void read_member(const nlohmann::json& object, const char* key, const std::string& file, bool& value) {
  value = boolean_member(object, key, file);
}
void read_member(const nlohmann::json& object, const char* key, const std::string& file, int64_t& value) {
  value = integer_member(object, key, file);
}

}  // namespace

void write_tokenizer_settings(const TokenizerConfig& settings, nlohmann::ordered_json& object) {
  visit_exported(settings, [&](const char* name, const auto& value) { object[name] = value; });
}

TokenizerConfig read_tokenizer_settings(const nlohmann::json& object, const std::string& file) {
  TokenizerConfig settings;
  visit_exported(settings, [&](const char* name, auto& value) {
    if (object.contains(name)) read_member(object, name, file, value);
  });
  return settings;
}

}  // namespace bert
