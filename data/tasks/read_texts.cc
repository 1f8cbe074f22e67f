#include "data/tasks/read_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "data/io/error.h"
#include "data/io/text_parts.h"
#include "data/tasks/table_reader.h"

namespace bert {
namespace {

constexpr size_t kMostLabels = 20;  // in a message
constexpr const char* kEmptyLabel = "the label is empty; want one in every row, or no such column in a test file";

/// Numbers of columns in the list that TableReader gets.
enum Column : size_t { kLabel, kId, kText, kPair, kFirstEnding = kPair + 1 };
constexpr size_t kSwagEndings = 4;

/// The columns of a task, in the order of Column.
std::vector<TableColumn> wanted_columns(const TaskExamples& examples, const TaskDataConfig& config) {
  const bool labelled = examples.source.split != TaskSplit::kTest;
  TaskColumns names = examples.task.columns;
  if (examples.task.layout == TaskLayout::kTable) {
    names.text = config.text_column;
    names.text_pair = config.text_pair_column;
    names.label = config.label_column;
  }
  if (examples.task.layout == TaskLayout::kSwag) names = {.text = "sent1", .text_pair = "sent2", .label = "label"};
  std::vector<TableColumn> columns = {{names.label, labelled}, {labelled ? "" : names.id, false}, {names.text, true}};
  columns.push_back({names.text_pair, !names.text_pair.empty()});
  if (examples.task.layout == TaskLayout::kSwag) {
    for (size_t i = 0; i < kSwagEndings; ++i) columns.push_back({fmt::format("ending{}", i), true});
  }
  return columns;
}

TableOptions table_options(const TaskExamples& examples) {
  const TaskDefinition& task = examples.task;
  const bool train = examples.source.split == TaskSplit::kTrain;
  TableOptions options;
  if (task.layout == TaskLayout::kTable) options.format = table_format(examples.file);
  if (task.layout == TaskLayout::kSwag) options.format = TableFormat::kCsv;
  options.same_width = task.layout != TaskLayout::kGlue;
  options.skip_short_rows = task.skips_short_rows && train;
  if (examples.source.split != TaskSplit::kTest) options.header = task.columns.header;
  return options;
}

std::string list_of(const std::vector<std::string>& labels) {
  std::string list;
  for (size_t i = 0; i < std::min(labels.size(), kMostLabels); ++i) list += (i == 0 ? "" : ", ") + labels[i];
  return list + (labels.size() > kMostLabels ? ", ..." : "");
}

double value_in(const TableReader& table) {
  const std::string& text = table.cell(kLabel);
  const auto value = number_of<double>(text);
  if (!value || !std::isfinite(*value)) table.fail(kLabel, fmt::format("want a number, got \"{}\"", text));
  return *value;
}

/// Makes an example of each row.
class RowReader {
 public:
  RowReader(const TaskExamples& examples, const TableReader& table) : examples_(examples), table_(table) {
    for (const std::string& label : examples.task.labels)
      classes_.emplace(label, static_cast<int32_t>(classes_.size()));
    if (examples.task.kind == TaskKind::kMultipleChoice) {
      for (size_t i = 0; i < kSwagEndings; ++i) classes_.emplace(std::to_string(i), static_cast<int32_t>(i));
    }
  }

  TextExample read(size_t row) {
    TextExample example{
        .id = std::to_string(row), .text = table_.cell(kText), .text_pair = table_.cell(kPair), .choices = {}};
    if (example.text.empty() && !examples_.task.skips_short_rows) table_.fail(kText, "the text is empty");
    if (examples_.task.kind == TaskKind::kMultipleChoice) {
      for (size_t i = 0; i < kSwagEndings; ++i) example.choices.push_back(table_.cell(kFirstEnding + i));
    }
    if (table_.has(kId)) {
      example.id = table_.cell(kId);
      if (!ids_.insert(example.id).second) table_.fail(kId, fmt::format("another row has the id \"{}\"", example.id));
    }
    if (!table_.has(kLabel)) return example;
    if (table_.cell(kLabel).empty() && examples_.task.layout == TaskLayout::kTable) table_.fail(kLabel, kEmptyLabel);
    if (examples_.task.kind == TaskKind::kRegression) {
      example.value = value_in(table_);
    } else {
      const auto found = classes_.find(table_.cell(kLabel));
      if (found == classes_.end()) {
        table_.fail(kLabel, fmt::format("unknown label \"{}\"; the labels are {}", table_.cell(kLabel),
                                        classes_.size() == examples_.task.labels.size() ? list_of(examples_.task.labels)
                                                                                        : "0, 1, 2, 3"));
      }
      example.label = found->second;
    }
    return example;
  }

 private:
  const TaskExamples& examples_;
  const TableReader& table_;
  std::unordered_map<std::string, int32_t> classes_;
  std::unordered_set<std::string> ids_;
};

}  // namespace

void read_texts(TaskExamples& examples, const TaskDataConfig& config) {
  TableReader table(examples.file, wanted_columns(examples, config), table_options(examples));
  RowReader rows(examples, table);
  examples.has_labels = table.has(kLabel);
  while (table.next()) examples.texts.push_back(rows.read(examples.texts.size()));
  examples.skipped_rows = table.skipped_rows();
  if (examples.texts.empty()) throw DataError(examples.file + ": the table has no rows");
}

std::vector<std::string> labels_in_table(const std::string& path, const TaskDataConfig& config) {
  TableReader table(path, {{config.label_column, true}}, {.format = table_format(path), .header = {}});
  std::set<std::string> labels;
  while (table.next()) {
    if (table.cell(0).empty()) table.fail(0, kEmptyLabel);
    labels.insert(table.cell(0));
  }
  return {labels.begin(), labels.end()};
}

}  // namespace bert
