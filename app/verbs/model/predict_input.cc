#include "app/verbs/model/predict_input.h"

#include <sstream>
#include <string_view>

#include "app/cli/standard_input.h"
#include "app/parse/bounded_json.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/text/text_input.h"
#include "data/text/unicode.h"

namespace bert {
namespace {

/// The text in `object` under a path such as "a.b". Throws DataError that names the field.
std::string field_of(const nlohmann::json& object, const std::string& path, const std::string& place) {
  const nlohmann::json* value = &object;
  std::istringstream names(path);
  for (std::string name; std::getline(names, name, '.');) {
    if (!value->is_object() || !value->contains(name)) {
      throw DataError(place + ": has no field \"" + path + "\"; --text-field names the field of the text");
    }
    value = &(*value)[name];
  }
  if (!value->is_string()) {
    throw DataError(place + ": field \"" + path + "\": want a string, got " + value->type_name());
  }
  return value->get<std::string>();
}

InputText text_of_object(const std::string& line, const std::string& text_field, const std::string& place) {
  const nlohmann::json checked = parse_bounded_json(line, place);  // within the limits
  if (!checked.is_object()) throw DataError(place + ": want a JSON object, got " + checked.type_name());
  return {.text = field_of(checked, text_field, place),
          .place = place,
          .number = 0,
          .object = nlohmann::ordered_json::parse(line)};  // with the order of the fields
}

}  // namespace

InputTexts read_input_texts(const std::string& input, const std::string& text_field) {
  const std::string name = input == "-" ? "standard input" : input;
  const auto check = [&name](std::string_view start) { check_is_plain_text(name, start); };
  std::istringstream stream(input == "-" ? read_standard_input(check) : read_file(input));
  check(stream.view());
  InputTexts result;
  int64_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() && !text_field.empty()) continue;  // between objects
    result.invalid_utf8 += drop_invalid_utf8(line);
    const std::string place = name + ": line " + std::to_string(number);
    if (text_field.empty()) {
      result.texts.push_back({.text = std::move(line), .place = place, .number = number, .object = {}});
      continue;
    }
    try {
      result.texts.push_back(text_of_object(line, text_field, place));
      result.texts.back().number = number;
    } catch (const DataError& error) {
      const std::string message = error.what();
      const std::string prefix = place + ": ";
      result.bad.push_back({place, message.starts_with(prefix) ? message.substr(prefix.size()) : message, number});
    }
  }
  if (result.texts.empty() && result.bad.empty()) {
    throw DataError(name + ": has no text; expected " +
                    (text_field.empty() ? "one text a line" : "one JSON object a line"));
  }
  return result;
}

InputTexts texts_of_arguments(const std::vector<std::string>& arguments) {
  InputTexts result;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string number = std::to_string(i + 1);
    InputText text{
        .text = arguments[i], .place = "TEXT " + number, .number = static_cast<int64_t>(i) + 1, .object = {}};
    result.invalid_utf8 += drop_invalid_utf8(text.text);
    result.texts.push_back(std::move(text));
  }
  return result;
}

}  // namespace bert
