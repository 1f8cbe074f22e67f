// The JSON of a request's body, read strictly. Functions throw HttpError: 400 for what is no JSON, else 422 with `name`
// before the reason.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bert {

constexpr int64_t kMaxDimensions = 1 << 20;  // that of bert predict

nlohmann::json parse_body(const std::string& body);

[[nodiscard]] bool lists(const std::vector<std::string>& names, const std::string& name);

/// Throws unless `object` is an object, and all its keys are in `known`.
void check_keys(const nlohmann::json& object, const std::string& name, const std::vector<std::string>& known);

/// The member of an object; nullptr if it is missing or null.
const nlohmann::json* find_member(const nlohmann::json& object, const char* key);

/// The same; throws if it is missing or null.
const nlohmann::json& wanted_member(const nlohmann::json& object, const char* key);

/// An integer from 1 to `most`.
int64_t integer_of(const nlohmann::json& value, const std::string& name, int64_t most);
bool boolean_of(const nlohmann::json& value, const std::string& name);
std::string string_of(const nlohmann::json& value, const std::string& name);

/// The member `key`, or `otherwise` if it is missing or null.
bool boolean_member_of(const nlohmann::json& object, const char* key, bool otherwise);

/// A list of texts; a text alone is a list of one.
std::vector<std::string> texts_of(const nlohmann::json& value, const std::string& name);

}  // namespace bert
