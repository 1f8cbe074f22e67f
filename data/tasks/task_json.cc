#include "data/tasks/task_json.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/io/error.h"

namespace bert {

nlohmann::json parse_task_json(std::string_view text, const std::string& file, int64_t first_line) {
  using nlohmann::json;
  constexpr int kMaxDepth = 64;
  const auto limit_depth = [&](int depth, json::parse_event_t, const json&) {
    if (depth < kMaxDepth) return true;
    throw DataError(fmt::format("{}:{}: nested deeper than {} levels", file, first_line, kMaxDepth));
  };
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  try {
    return json::parse(text.begin(), text.end(), limit_depth);
  } catch (const json::parse_error& error) {
    const std::string_view before = text.substr(0, error.byte == 0 ? 0 : error.byte - 1);
    const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
    throw DataError(fmt::format("{}:{}:{}: this is not JSON", file, first_line + std::ranges::count(before, '\n'),
                                before.size() - line_start + 1));
  } catch (const json::exception& error) {  // a number that does not fit
    throw DataError(fmt::format("{}:{}: {}", file, first_line, error.what()));
  }
}

}  // namespace bert
