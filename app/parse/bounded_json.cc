#include "app/parse/bounded_json.h"

#include <fstream>
#include <limits>
#include <set>
#include <vector>

#include "data/io/error.h"

namespace bert {
namespace {

using nlohmann::json;

const json& any_member(const json& object, const char* key, const std::string& file) {
  const auto found = object.find(key);
  if (found == object.end()) throw DataError(file + ": \"" + key + "\" is missing");
  return *found;
}

[[noreturn]] void throw_type(const json& got, const char* key, const char* want, const std::string& file) {
  throw DataError(file + ": \"" + key + "\": want " + want + ", got " + got.type_name());
}

}  // namespace

std::string as_text(const json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

json parse_bounded_json(const std::string& text, const std::string& file) {
  constexpr int kMaxDepth = 64;
  std::vector<std::set<std::string>> keys(kMaxDepth + 1);  // of the open object at each depth
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    if (depth >= kMaxDepth) throw DataError(file + ": nested deeper than " + std::to_string(kMaxDepth) + " levels");
    const auto level = static_cast<size_t>(depth);
    if (event == json::parse_event_t::object_start) keys[level + 1].clear();
    if (event == json::parse_event_t::key && !keys[level].insert(value.get<std::string>()).second) {
      throw DataError(file + ": duplicate key \"" + value.get<std::string>() + "\"");
    }
    return true;
  };
  if (const size_t zero = text.find('\0'); zero != std::string::npos)  // the end of a text to nlohmann's parser
    throw DataError(file, static_cast<int64_t>(zero), "this is not JSON");
  try {
    return json::parse(text, watch);
  } catch (const json::parse_error& error) {
    throw DataError(file, static_cast<int64_t>(error.byte), "this is not JSON");
  } catch (const json::exception& error) {  // a number that does not fit
    throw DataError(file + ": " + error.what());
  }
}

const json& member(const json& object, const char* key, json::value_t type, const std::string& file) {
  const json& value = any_member(object, key, file);
  if (value.type() != type) throw_type(value, key, json(type).type_name(), file);
  return value;
}

int64_t integer_member(const json& object, const char* key, const std::string& file) {
  const json& value = any_member(object, key, file);
  const bool fits = !value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
  if (!value.is_number_integer() || !fits) throw_type(value, key, "a 64-bit integer", file);
  return value.get<int64_t>();
}

double number_member(const json& object, const char* key, const std::string& file) {
  const json& value = any_member(object, key, file);
  if (!value.is_number()) throw_type(value, key, "a number", file);
  return value.get<double>();
}

bool boolean_member(const json& object, const char* key, const std::string& file) {
  return member(object, key, json::value_t::boolean, file).get<bool>();
}

const std::string& string_member(const json& object, const char* key, const std::string& file) {
  return member(object, key, json::value_t::string, file).get_ref<const std::string&>();
}

nlohmann::json read_benchmark_report(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw InputMissing(path + ": cannot be read; expected what `bert benchmark --json` printed");
  std::string whole, last;
  for (std::string line; std::getline(file, line); whole += line + "\n") {
    if (line.find_first_not_of(" \t\r") != std::string::npos) last = line;
  }
  // The output of --json ends with the report on one line. A formatted file is a report as a whole.
  nlohmann::json report = parse_bounded_json(last.starts_with('{') ? last : whole, path);
  if (!report.is_object() || !report.contains("benchmark"))
    throw DataError(path + ": neither it nor its last line is a report of `bert benchmark --json`");
  return report;
}

}  // namespace bert
