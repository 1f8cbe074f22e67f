#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace bert {

/// Parses JSON that may come from anywhere. Throws DataError naming `file` on a syntax error, a duplicate key or
/// nesting over 64 levels.
nlohmann::json parse_bounded_json(const std::string& text, const std::string& file);

/// `value` on one line; what is no UTF-8 becomes U+FFFD.
std::string as_text(const nlohmann::json& value);

/// Members with their type checked; each throws DataError naming `file` and the key.
const nlohmann::json& member(const nlohmann::json& object, const char* key, nlohmann::json::value_t type,
                             const std::string& file);
int64_t integer_member(const nlohmann::json& object, const char* key, const std::string& file);
double number_member(const nlohmann::json& object, const char* key, const std::string& file);
bool boolean_member(const nlohmann::json& object, const char* key, const std::string& file);
const std::string& string_member(const nlohmann::json& object, const char* key, const std::string& file);

}  // namespace bert
