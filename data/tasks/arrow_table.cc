#include "data/tasks/arrow_table.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/io/arrow_library.h"
#include "data/io/bounded_child.h"
#include "data/io/error.h"

namespace bert {
namespace {

enum ArrowMessage : int64_t { kRowFollows = 2, kNoMoreRows };

nlohmann::ordered_json json_of(const ArrowValue& value) {
  switch (value.kind) {
    case ArrowValue::Kind::kText:
      return value.text;
    case ArrowValue::Kind::kNumber: {
      const auto number = nlohmann::ordered_json::parse(value.text, nullptr, /*allow_exceptions=*/false);
      return number.is_discarded() ? value.text : number;  // nan and inf are texts
    }
    case ArrowValue::Kind::kOther:
      return nlohmann::ordered_json::object();
    default:
      return nullptr;
  }
}

void send_rows(const ArrowLibrary& library, const std::string& path, MessageSender& sender) {
  std::string reason;
  const bool read = library.read_table(
      path,
      [&](std::span<const ArrowCell> cells) {
        nlohmann::ordered_json row = nlohmann::ordered_json::object();
        for (const ArrowCell& cell : cells) {
          nlohmann::ordered_json& value = row[std::string(cell.column)];
          if (!cell.list) {
            value = json_of(cell.values.front());
            continue;
          }
          value = nlohmann::ordered_json::array();
          for (const ArrowValue& element : cell.values) value.push_back(json_of(element));
        }
        sender.number(kRowFollows);
        sender.text(row.dump());
      },
      [&](std::string_view text) { reason = text; });
  if (!read) throw DataError("cannot read it as Arrow or Parquet: " + reason);
  sender.number(kNoMoreRows);
}

}  // namespace

std::string arrow_table_lines(const std::string& path) {
  constexpr int64_t kMostMemory = int64_t{2} << 30;  // of the child
  constexpr int64_t kBytesPerSecond = 50000;         // at least; columns that repeat take few bytes
  constexpr int64_t kSilentMs = 60000;
  const ArrowLibrary& library = arrow_library();  // loaded once, not by every child
  MessageReader child(
      path,
      {.memory_bytes = kMostMemory,
       .processor_seconds = 1 + static_cast<int64_t>(std::filesystem::file_size(path)) / kBytesPerSecond,
       .silent_ms = kSilentMs},
      [&](MessageSender& sender) { send_rows(library, path, sender); });
  std::string lines;
  int64_t message = child.message();
  for (; message == kRowFollows; message = child.message()) (lines += child.text()) += '\n';
  if (message != kNoMoreRows) throw child.bad("the process that parses the file gave answers out of order");
  if (lines.empty()) throw child.bad("the table has no rows");
  return lines;
}

}  // namespace bert
