#include "app/serve/protocols/json_body.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "app/http/types.h"
#include "app/parse/bounded_json.h"
#include "data/io/error.h"

namespace bert {

using nlohmann::json;

json parse_body(const std::string& body) {
  try {
    return parse_bounded_json(body, "body");
  } catch (const DataError& error) {
    throw HttpError(400, error.what());
  }
}

bool lists(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void check_keys(const json& object, const std::string& name, const std::vector<std::string>& known) {
  if (!object.is_object()) throw HttpError(422, name + ": want an object, got " + object.type_name());
  for (const auto& [key, value] : object.items()) {
    if (lists(known, key)) continue;
    throw HttpError(422, fmt::format("{}: unknown key \"{}\"{}{}", name, key,
                                     known.empty() ? "" : "; known: ", fmt::join(known, ", ")));
  }
}

const json* find_member(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

const json& wanted_member(const json& object, const char* key) {
  const json* value = find_member(object, key);
  if (value == nullptr) throw HttpError(422, fmt::format("{}: is missing", key));
  return *value;
}

int64_t integer_of(const json& value, const std::string& name, int64_t most) {
  const bool fits = value.is_number_integer() && value >= 1 && value <= most;
  if (!fits) throw HttpError(422, fmt::format("{}: want an integer from 1 to {}", name, most));
  return value.get<int64_t>();
}

bool boolean_of(const json& value, const std::string& name) {
  if (!value.is_boolean()) throw HttpError(422, fmt::format("{}: want true or false, got {}", name, as_text(value)));
  return value.get<bool>();
}

std::string string_of(const json& value, const std::string& name) {
  if (!value.is_string()) throw HttpError(422, fmt::format("{}: want a text, got {}", name, value.type_name()));
  return value.get<std::string>();
}

bool boolean_member_of(const json& object, const char* key, bool otherwise) {
  const json* value = find_member(object, key);
  return value == nullptr ? otherwise : boolean_of(*value, key);
}

std::vector<std::string> texts_of(const json& value, const std::string& name) {
  std::vector<std::string> texts;
  for (const json& text : value.is_array() ? value : json::array({value})) {
    if (!text.is_string()) throw HttpError(422, fmt::format("{}: want texts, got {}", name, as_text(text)));
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

}  // namespace bert
