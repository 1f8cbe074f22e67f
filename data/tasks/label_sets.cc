#include "data/tasks/label_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "data/io/error.h"
#include "data/io/text_parts.h"

namespace bert {

std::set<std::string> labels_in_cell(const TableReader& table, size_t column, const std::string& separator) {
  std::set<std::string> labels;
  const auto add = [&](std::string_view label) {
    label = trimmed(label);
    if (label.empty()) table.fail(column, "one of the labels is empty; want an empty column where there are none");
    labels.emplace(label);
  };
  if (const std::vector<std::string>* list = table.list(column)) {
    for (const std::string& label : *list) add(label);
    return labels;
  }
  const std::string_view cell = table.cell(column);
  if (trimmed(cell).empty()) return labels;
  for (size_t begin = 0, end = 0; end != std::string_view::npos; begin = end + separator.size()) {
    end = cell.find(separator, begin);
    add(cell.substr(begin, end - begin));
  }
  return labels;
}

namespace {

int32_t number_of_label(const TableReader& table, size_t column, const std::string& label,
                        const std::unordered_map<std::string, int32_t>& numbers) {
  const auto found = numbers.find(label);
  if (found != numbers.end()) return found->second;
  std::vector<std::string> known(numbers.size());
  for (const auto& [name, number] : numbers) known[static_cast<size_t>(number)] = name;
  table.fail(column, fmt::format("unknown label \"{}\"; the labels are {}; see data.labels and data.label_separator",
                                 label, list_of(known)));
}

double finite_number(const TableReader& table, size_t column, const std::string& text) {
  const auto value = number_of<double>(text);
  if (!value || !std::isfinite(*value)) table.fail(column, fmt::format("want a number, got \"{}\"", text));
  return *value;
}

}  // namespace

std::vector<int32_t> label_set(const TableReader& table, size_t column, const std::string& separator,
                               const std::unordered_map<std::string, int32_t>& numbers) {
  std::vector<int32_t> set;
  for (const std::string& label : labels_in_cell(table, column, separator))
    set.push_back(number_of_label(table, column, label, numbers));
  std::ranges::sort(set);
  return set;
}

std::vector<int32_t> label_set_of_columns(const TableReader& table, size_t first,
                                          const std::vector<std::string>& labels,
                                          const std::unordered_map<std::string, int32_t>& numbers) {
  std::vector<int32_t> set;
  for (size_t i = 0; i < labels.size(); ++i) {
    const std::string value = in_small_letters(trimmed(table.cell(first + i)));
    const auto number = number_of<double>(value);
    const bool yes = value == "true" || number == 1;
    if (!yes && value != "false" && number != 0)
      table.fail(first + i, fmt::format("want 0 or 1, got \"{}\"", table.cell(first + i)));
    if (yes) set.push_back(number_of_label(table, first + i, labels[i], numbers));
  }
  std::ranges::sort(set);
  return set;
}

std::vector<std::string> label_sets_in_table(const std::string& path, const TaskDataConfig& config) {
  TableReader table(path, {{config.label_column, true, true}}, own_table_options(path, config));
  std::set<std::string> labels;
  while (table.next()) labels.merge(labels_in_cell(table, 0, config.label_separator));
  return {labels.begin(), labels.end()};
}

double number_in_cell(const TableReader& table, size_t column) {
  return finite_number(table, column, table.cell(column));
}

std::vector<double> numbers_in_cell(const TableReader& table, size_t column) {
  const std::vector<std::string>* list = table.list(column);
  if (list == nullptr) return {number_in_cell(table, column)};
  std::vector<double> numbers;
  for (const std::string& text : *list) numbers.push_back(finite_number(table, column, text));
  return numbers;
}

std::vector<std::string> number_names_in_table(const std::string& path, const TaskDataConfig& config) {
  TableReader table(path, {{config.label_column, true, true}}, own_table_options(path, config));
  std::vector<std::string> names;
  if (!table.next()) return names;
  const size_t numbers = numbers_in_cell(table, 0).size();
  for (size_t i = 0; i < numbers && numbers > 1; ++i) names.push_back(fmt::format("LABEL_{}", i));
  return names;
}

void check_set_labels(const std::vector<std::string>& labels, const std::string& separator) {
  for (const std::string& label : labels) {
    if (label.find(separator) != std::string::npos)
      throw DataError(
          fmt::format("the label \"{}\" has the text \"{}\", which stands between labels; set data.label_separator "
                      "to another one",
                      label, separator));
    if (label.find_first_of("\t\r\n") != std::string::npos)
      throw DataError(fmt::format("the label \"{}\" has a tab or a line break; want a label without", label));
  }
}

}  // namespace bert
