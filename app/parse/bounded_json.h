#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace bert {

/// Parses JSON from an untrusted file. Throws DataError, which names `file`, for a syntax error, a number that does not
/// fit, a duplicate key, or nesting over 64 levels.
nlohmann::json parse_bounded_json(const std::string& text, const std::string& file);

/// `value` as JSON on one line; invalid UTF-8 becomes U+FFFD.
std::string as_text(const nlohmann::json& value);

/// The member `key` of `object`, of the type that the function names. Each throws DataError, which names `file` and the
/// key, if the member is missing or of another type.
const nlohmann::json& member(const nlohmann::json& object, const char* key, nlohmann::json::value_t type,
                             const std::string& file);
int64_t integer_member(const nlohmann::json& object, const char* key, const std::string& file);
double number_member(const nlohmann::json& object, const char* key, const std::string& file);
bool boolean_member(const nlohmann::json& object, const char* key, const std::string& file);
const std::string& string_member(const nlohmann::json& object, const char* key, const std::string& file);

/// The report of `bert benchmark --json` in a file: its last line that is not empty, so the output can be redirected to
/// it. Throws InputMissing or DataError.
nlohmann::json read_benchmark_report(const std::string& path);

}  // namespace bert
