// JSON of tasks' files.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace bert {

/// Parses JSON from an untrusted file, a part of which is `text`, from line `first_line` on. Throws DataError with the
/// file, line and column for a syntax error, a number that does not fit, or nesting over 64 levels.
nlohmann::json parse_task_json(std::string_view text, const std::string& file, int64_t first_line = 1);

}  // namespace bert
