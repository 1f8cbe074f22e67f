#include "data/tasks/embedding_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/text_parts.h"
#include "data/tasks/squad.h"
#include "data/tasks/table_reader.h"
#include "data/tasks/text_features.h"

namespace bert {
namespace {

/// The columns with their names.
RowColumns found_columns(const std::string& path, RowColumns columns) {
  constexpr std::array<std::string_view, 4> kLabels = {"score", "scores", "label", "labels"};
  const std::vector<std::string> names = table_columns(path);
  if (columns.label.empty() && columns.texts.empty()) {
    const auto found = std::ranges::find_first_of(names, kLabels);
    if (found != names.end()) columns.label = *found;
  } else if (columns.label.empty()) {
    for (const std::string& name : names) {
      const bool is_text = std::ranges::find(columns.texts, name) != columns.texts.end();
      if (!is_text && columns.label.empty() && std::ranges::find(kLabels, name) != kLabels.end()) columns.label = name;
    }
  }
  if (columns.texts.empty()) {
    std::ranges::copy_if(names, std::back_inserter(columns.texts),
                         [&](const auto& name) { return name != columns.label; });
  }
  if (columns.texts.empty()) {
    throw DataError(fmt::format("{}: no column of texts; the columns are {}", path, list_of(names)));
  }
  return columns;
}

/// Sets the value of each row to the place of its label among all of them.
void number_classes(TaskExamples& rows, const std::vector<std::string>& labels) {
  const std::set<std::string> distinct(labels.begin(), labels.end());
  std::vector<std::string>& names = rows.task.labels;
  names.assign(distinct.begin(), distinct.end());
  sort_labels(names);
  for (size_t i = 0; i < labels.size(); ++i)
    rows.texts[i].value = static_cast<double>(std::ranges::find(names, labels[i]) - names.begin());
}

/// True for a file of SQuAD: an object with "data" that has "paragraphs".
bool is_squad(const std::string& path) {
  constexpr size_t kHead = 4096;  // bytes within which the first paragraphs begin
  if (!path.ends_with(".json")) return false;
  const MappedFile file(path);
  const std::string_view head = file.view().substr(0, kHead);
  const bool found =
      head.find("\"data\"") != std::string_view::npos && head.find("\"paragraphs\"") != std::string_view::npos;
  file.expect_whole();
  return found;
}

/// Each question with its paragraph.
void read_questions(const std::string& path, TaskExamples& rows) {
  const SquadDataset squad = read_squad(path, {.no_answers = true, .need_answers = false, .for_scoring = true});
  for (const SquadQuestion& question : squad.questions) {
    TextExample& row = rows.texts.emplace_back();
    row.id = question.id;
    row.text = question.text;
    row.text_pair = squad.paragraphs[static_cast<size_t>(question.paragraph)].context;
  }
}

/// The texts of the table's row in its first `columns` columns.
std::vector<std::string> texts_of_row(const TableReader& table, size_t columns) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < columns; ++i) {
    const auto before = std::ssize(texts);
    if (const std::vector<std::string>* list = table.list(i)) {
      if (list->empty() || (list->size() > 1 && i + 1 < columns)) {
        table.fail(i, fmt::format("the list has {} texts; want one, or in the last column of texts one or more",
                                  list->size()));
      }
      texts.insert(texts.end(), list->begin(), list->end());
    } else {
      texts.push_back(table.cell(i));
    }
    if (std::any_of(texts.begin() + before, texts.end(), [](const auto& text) { return text.empty(); }))
      table.fail(i, "the text is empty");
  }
  return texts;
}

}  // namespace

TaskExamples read_text_rows(const std::string& path, const RowColumns& columns, RowLabels labels) {
  TaskExamples rows;
  rows.task = task_definition("embedding");
  rows.file = path;
  if (is_squad(path)) {
    read_questions(path, rows);
    return rows;
  }
  const RowColumns found = found_columns(path, columns);
  const size_t count = found.texts.size();
  std::vector<TableColumn> wanted;
  for (const std::string& name : found.texts) wanted.push_back({name, true, /*list=*/true});
  wanted.push_back({found.label, !found.label.empty(), /*list=*/labels != RowLabels::kClasses});
  TableReader table(path, wanted, {.format = table_format(path), .header = {}, .same_width = false});
  rows.has_labels = table.has(count);
  std::vector<std::string> names;
  int64_t in_first = 0;  // texts
  while (table.next()) {
    TextExample& row = rows.texts.emplace_back();
    row.id = std::to_string(rows.texts.size() - 1);
    std::vector<std::string> texts = texts_of_row(table, count);
    if (in_first == 0) in_first = std::ssize(texts);
    if (std::ssize(texts) != in_first) {
      table.fail(count - 1, fmt::format("the row has {} texts, and the first row {}; make all lists as long",
                                        texts.size(), in_first));
    }
    for (size_t i = 0; i < texts.size(); ++i)
      (i == 0 ? row.text : i == 1 ? row.text_pair : row.choices.emplace_back()) = std::move(texts[i]);
    if (!rows.has_labels || labels == RowLabels::kUnread) continue;
    const std::string& label = table.cell(count);
    if (labels == RowLabels::kClasses) {
      if (label.empty()) table.fail(count, "the label is empty");
      names.push_back(label);
      continue;
    }
    const std::vector<std::string>* const scores = table.list(count);
    if (scores != nullptr && (scores->size() != 2 || texts.size() != 3))
      table.fail(count,
                 fmt::format("the list has {} scores for {} texts; want two, of positive and negative, for three",
                             scores->size(), texts.size()));
    const auto number = [&](const std::string& text) {
      const auto value = number_of<double>(text);
      if (!value || !std::isfinite(*value)) table.fail(count, fmt::format("want a number, got \"{}\"", text));
      return *value;
    };
    row.value = scores == nullptr ? number(label) : number((*scores)[0]) - number((*scores)[1]);
  }
  if (rows.texts.empty()) throw DataError(path + ": the table has no rows");
  if (labels == RowLabels::kClasses) number_classes(rows, names);
  return rows;
}

int64_t texts_in_row(const TaskExamples& rows) {
  const TextExample& row = rows.texts.front();
  return row.text_pair.empty() ? 1 : 2 + std::ssize(row.choices);
}

TaskFeatures make_row_features(const TaskExamples& rows, const Tokenizer& tokenizer, const TaskDataConfig& config,
                               const std::vector<std::string>& prompts, int64_t repeats) {
  TaskFeatures features;
  features.kind = TaskKind::kEmbedding;
  for (size_t i = 0; i < rows.texts.size(); ++i) {
    const TextExample& row = rows.texts[i];
    bool cut = false;
    size_t column = 0;
    const auto append = [&](const std::string& text) {
      const std::string prompt = prompts.empty() ? "" : prompts[std::min(column++, prompts.size() - 1)];
      TaskSequence sequence = text_sequence(tokenizer, prompt + text, config, cut);
      sequence.example = static_cast<int32_t>(i);
      sequence.value = static_cast<float>(row.value);
      for (int64_t n = 0; n < repeats; ++n) features.sequences.push_back(sequence);
    };
    append(row.text);
    if (!row.text_pair.empty()) append(row.text_pair);
    for (const std::string& text : row.choices) append(text);
    features.cut += cut;
  }
  return features;
}

}  // namespace bert
