#include "data/tasks/table_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/config.h"
#include "data/io/error.h"
#include "data/tasks/arrow_table.h"
#include "data/tasks/task_json.h"
#include "data/text/text_input.h"
#include "data/text/unicode.h"

namespace bert {
namespace {

/// A value of a flat JSON object as text.
std::string text_of(const nlohmann::json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

}  // namespace

std::string list_of(const std::vector<std::string>& names) {
  constexpr size_t kMost = 20;
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) list += (i == 0 ? "" : ", ") + names[i];
  return list + (names.size() > kMost ? ", ..." : "");
}

TableFormat table_format(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension().string();
  if (extension == ".csv") return TableFormat::kCsv;
  if (extension == ".tsv") return TableFormat::kTsv;
  if (extension == ".jsonl" || extension == ".json") return TableFormat::kJsonLines;
  if (extension == ".parquet" || extension == ".arrow") return TableFormat::kArrow;
  throw DataError(fmt::format("{}: the name of a table ends in .csv, .tsv, .jsonl, .json, .parquet or .arrow", path));
}

TableOptions own_table_options(const std::string& path, const TaskDataConfig& config) {
  TableOptions options{.format = table_format(path), .header = {}};
  if (options.format == TableFormat::kJsonLines || config.columns.empty()) return options;
  const std::vector<std::string> names = table_columns(path);
  if (std::ranges::find(names, config.text_column) == names.end()) options.header = config.columns;
  return options;
}

std::vector<std::string> table_columns(const std::string& path) {
  return TableReader(path, {}, {.format = table_format(path), .header = {}}).header();
}

TableReader::TableReader(const std::string& path, std::vector<TableColumn> columns, TableOptions options)
    : path_(path),
      columns_(std::move(columns)),
      options_(std::move(options)),
      file_(path),
      objects_(options_.format == TableFormat::kArrow ? arrow_table_lines(path) : std::string()),
      text_(options_.format == TableFormat::kArrow ? std::string_view(objects_) : file_.view()) {
  if (options_.format == TableFormat::kArrow) options_.format = TableFormat::kJsonLines;
  if (text_.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);
  if (rest_is_blank()) throw DataError(path + ": the file is empty");
  check_is_plain_text(path, text_);
  cells_.resize(columns_.size());
  lists_.resize(columns_.size());
  places_.assign(columns_.size(), -1);
  if (options_.format == TableFormat::kJsonLines) {
    const std::string_view line = take_line();
    read_object(line, true);
    const nlohmann::ordered_json object = nlohmann::ordered_json::parse(line);  // read_object() has checked it
    for (const auto& member : object.items()) options_.header.push_back(member.key());
    at_ = 0;
    next_line_ = 1;
    return;
  }
  if (options_.header.empty()) {
    read_row();
    options_.header.assign(fields_.begin(), fields_.begin() + static_cast<std::ptrdiff_t>(count_));
  }
  find_columns(options_.header);
}

void TableReader::find_columns(const std::vector<std::string>& header) {
  width_ = header.size();
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (columns_[i].name.empty()) continue;
    const auto found = std::ranges::find(header, columns_[i].name);
    if (found != header.end() && std::find(found + 1, header.end(), columns_[i].name) != header.end())
      throw DataError(fmt::format("{}:1: two columns have the name \"{}\"", path_, columns_[i].name));
    if (found != header.end()) {
      places_[i] = found - header.begin();
    } else if (columns_[i].required) {
      throw DataError(
          fmt::format("{}:1: no column \"{}\"; the columns are {}", path_, columns_[i].name, list_of(header)));
    }
  }
}

bool TableReader::rest_is_blank() const { return text_.find_first_not_of("\r\n", at_) == std::string_view::npos; }

std::string_view TableReader::take_line() {
  line_ = next_line_++;
  const size_t end = std::min(text_.find('\n', at_), text_.size());
  std::string_view line = text_.substr(at_, end - at_);
  at_ = std::min(end + 1, text_.size());
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::string& TableReader::new_field() {
  if (count_ == fields_.size()) fields_.emplace_back();
  fields_[count_].clear();
  return fields_[count_++];
}

void TableReader::split_tabs(std::string_view line) {
  for (;;) {
    const size_t tab = line.find('\t');
    new_field() = line.substr(0, tab);
    if (tab == std::string_view::npos) return;
    line.remove_prefix(tab + 1);
  }
}

void TableReader::split_commas() {
  line_ = next_line_;
  for (;;) {
    std::string& field = new_field();
    if (at_ < text_.size() && text_[at_] == '"') {
      for (++at_;;) {
        const size_t quote = text_.find('"', at_);
        if (quote == std::string_view::npos) fail_row(fmt::format("column {}: a quoted field has no end", count_));
        const std::string_view part = text_.substr(at_, quote - at_);
        next_line_ += std::ranges::count(part, '\n');
        field += part;
        at_ = quote + 1;
        if (at_ >= text_.size() || text_[at_] != '"') break;
        field += '"';
        ++at_;
      }
      const std::string_view rest = text_.substr(at_);
      if (!rest.empty() && rest[0] != ',' && rest[0] != '\n' && !rest.starts_with("\r\n") && rest != "\r")
        fail_row(fmt::format("column {}: text after the closing quote; a quote in a quoted field is doubled", count_));
    } else {
      const size_t end = std::min(text_.find_first_of(",\n", at_), text_.size());
      field = text_.substr(at_, end - at_);
      at_ = end;
      if ((end == text_.size() || text_[end] == '\n') && field.ends_with('\r')) field.pop_back();
    }
    if (at_ < text_.size() && text_[at_] == ',') {
      ++at_;
      continue;
    }
    if (at_ < text_.size() && text_[at_] == '\r') ++at_;
    if (at_ < text_.size()) ++at_;  // the line feed
    ++next_line_;
    return;
  }
}

bool TableReader::read_row() {
  count_ = 0;
  if (options_.format == TableFormat::kCsv) {
    split_commas();
  } else {
    split_tabs(take_line());
  }
  return count_ > 1 || !fields_[0].empty();
}

bool TableReader::next() {
  for (;;) {
    if (rest_is_blank()) {
      file_.expect_whole();
      return false;
    }
    if (options_.format == TableFormat::kJsonLines) {
      read_object(take_line(), false);
      check_cells();
      return true;
    }
    if (!read_row()) fail_row("the line is blank");
    const int64_t last = *std::ranges::max_element(places_);
    if (static_cast<int64_t>(count_) <= last && options_.skip_short_rows) {
      ++skipped_rows_;
      continue;
    }
    if (options_.same_width && count_ != width_)
      fail_row(fmt::format("the row has {} columns, the header {}", count_, width_));
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (places_[i] < 0) continue;
      const auto place = static_cast<size_t>(places_[i]);
      if (place >= count_) fail(i, fmt::format("the row has {} columns, and this is column {}", count_, place + 1));
      cells_[i] = fields_[place];
    }
    check_cells();
    return true;
  }
}

void TableReader::read_object(std::string_view line, bool first) {
  if (line.empty()) fail_row("the line is blank");
  const nlohmann::json object = parse_task_json(line, path_, line_);
  if (!object.is_object()) fail_row(fmt::format("want a JSON object in each line, got {}", object.type_name()));
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (columns_[i].name.empty()) continue;
    const auto found = object.find(columns_[i].name);
    const bool there = found != object.end() && !found->is_null();
    if (columns_[i].json) {
      cells_[i] = there ? found->dump() : "";
      continue;
    }
    if (first && there) places_[i] = 0;
    if (!there && (columns_[i].required || places_[i] >= 0)) {
      std::vector<std::string> names;
      for (const auto& member : object.items()) names.push_back(member.key());
      fail_row(fmt::format("no field \"{}\"; the object has {}", columns_[i].name, list_of(names)));
    }
    if (places_[i] < 0) continue;
    lists_[i].reset();
    if (found->is_array() && columns_[i].list) {
      cells_[i].clear();
      std::vector<std::string>& list = lists_[i].emplace();
      for (const nlohmann::json& element : *found) {
        if (element.is_structured() || element.is_null())
          fail(i, fmt::format("want strings or numbers in the list, got {}", element.type_name()));
        list.push_back(text_of(element));
      }
      continue;
    }
    if (found->is_structured()) fail(i, fmt::format("want a string or a number, got {}", found->type_name()));
    cells_[i] = text_of(*found);
  }
}

void TableReader::check_cells() const {
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (count_invalid_utf8(cells_[i]) > 0) fail(i, "the text is not UTF-8");
  }
}

void TableReader::fail_row(const std::string& message) const {
  file_.expect_whole();
  throw DataError(fmt::format("{}:{}: {}", path_, line_, message));
}

void TableReader::fail(size_t column, const std::string& message) const {
  fail_row(fmt::format("column \"{}\": {}", columns_[column].name, message));
}

}  // namespace bert
