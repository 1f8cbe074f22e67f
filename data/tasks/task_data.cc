#include "data/tasks/task_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "data/io/error.h"
#include "data/io/text_parts.h"
#include "data/tasks/conll.h"
#include "data/tasks/entity_lines.h"
#include "data/tasks/entity_markers.h"
#include "data/tasks/label_schemes.h"
#include "data/tasks/label_sets.h"
#include "data/tasks/table_reader.h"
#include "data/tasks/text_features.h"

namespace bert {
namespace {

constexpr const char* kEmptyLabel = "the label is empty; want one in every row, or no such column in a test file";

/// Numbers of columns in the list that TableReader gets. SWAG's endings, or the columns of labels, are the last.
enum Column : size_t { kLabel, kId, kText, kPair, kLanguage, kSpans, kFirstEnding, kFirstLabel = kFirstEnding };
constexpr size_t kSwagEndings = 4;

/// True if the labels or numbers of a table have a column each.
bool has_label_columns(const TaskDefinition& task, const TaskDataConfig& config) {
  return task.several_labels() && !config.label_columns.empty();
}

/// The columns of a task, in the order of Column.
std::vector<TableColumn> wanted_columns(const TaskExamples& examples, const TaskDataConfig& config) {
  const bool labelled = examples.source.split != TaskSplit::kTest;
  TaskColumns names = examples.source.columns.value_or(examples.task.columns);
  if (examples.task.layout == TaskLayout::kTable) {
    names.text = config.text_column;
    names.text_pair = config.text_pair_column;
    if (!has_label_columns(examples.task, config)) names.label = config.label_column;
  }
  if (examples.task.layout == TaskLayout::kSwag) names = {.text = "sent1", .text_pair = "sent2", .label = "label"};
  std::vector<TableColumn> columns = {
      {names.label, labelled, examples.task.several_labels()}, {labelled ? "" : names.id, false}, {names.text, true}};
  columns.push_back({names.text_pair, !names.text_pair.empty()});
  columns.push_back({names.language});
  const bool marked =
      config.entity_markers != EntityMarkers::kNone && table_format(examples.file) == TableFormat::kJsonLines;
  columns.push_back({marked ? config.spans_column : "", false, false, true});
  if (examples.task.layout == TaskLayout::kSwag) {
    for (size_t i = 0; i < kSwagEndings; ++i) columns.push_back({fmt::format("ending{}", i), true});
  }
  if (has_label_columns(examples.task, config)) {
    for (const std::string& label : config.label_columns) columns.push_back({label, labelled});
  }
  return columns;
}

TableOptions table_options(const TaskExamples& examples, const TaskDataConfig& config) {
  const TaskDefinition& task = examples.task;
  const bool train = examples.source.split == TaskSplit::kTrain;
  TableOptions options;
  if (task.layout == TaskLayout::kTable) options = own_table_options(examples.file, config);
  if (task.layout == TaskLayout::kSwag) options.format = TableFormat::kCsv;
  options.same_width = task.layout != TaskLayout::kGlue;
  options.skip_short_rows = task.skips_short_rows && train;
  if (task.layout == TaskLayout::kGlue && examples.source.split != TaskSplit::kTest)
    options.header = task.columns.header;
  return options;
}

/// The numbers of a row, one for each output of the task.
std::vector<double> values_in(const TableReader& table, const TaskDefinition& task, const TaskDataConfig& config) {
  std::vector<double> values;
  if (has_label_columns(task, config)) {
    for (size_t i = 0; i < config.label_columns.size(); ++i) values.push_back(number_in_cell(table, kFirstLabel + i));
  } else {
    values = numbers_in_cell(table, kLabel);
  }
  if (std::ssize(values) != task.num_outputs())
    table.fail(kLabel, fmt::format("want {} numbers, got {}", task.num_outputs(), values.size()));
  if (task.scores && (values[0] < 0 || values[0] > 1))
    table.fail(kLabel, fmt::format("want a score from 0 to 1, got {}", table.cell(kLabel)));
  return values;
}

/// Makes an example of each row.
class RowReader {
 public:
  RowReader(const TaskExamples& examples, const TableReader& table, const TaskDataConfig& config)
      : examples_(examples), table_(table), config_(config) {
    for (const std::string& label : examples.task.labels)
      classes_.emplace(label, static_cast<int32_t>(classes_.size()));
    for (const auto& [word, label] : examples.task.aliases) classes_.emplace(word, classes_.at(label));
    if (examples.task.kind == TaskKind::kMultipleChoice) {
      for (size_t i = 0; i < kSwagEndings; ++i) classes_.emplace(std::to_string(i), static_cast<int32_t>(i));
    }
  }

  TextExample read(size_t row) {
    TextExample example{
        .id = std::to_string(row), .text = table_.cell(kText), .text_pair = table_.cell(kPair), .choices = {}};
    if (!table_.cell(kSpans).empty()) mark(example.text);
    if (example.text.empty() && !examples_.task.skips_short_rows) table_.fail(kText, "the text is empty");
    if (examples_.task.kind == TaskKind::kMultipleChoice) {
      for (size_t i = 0; i < kSwagEndings; ++i) example.choices.push_back(table_.cell(kFirstEnding + i));
    }
    if (table_.has(kId)) {
      example.id = table_.cell(kId);
      if (example.id.find_first_of("\t\r\n") != std::string::npos)
        table_.fail(kId, "the id has a tab or a line break, which tables of predictions cannot hold");
      if (!ids_.insert(example.id).second) table_.fail(kId, fmt::format("another row has the id \"{}\"", example.id));
    }
    if (!examples_.has_labels) return example;
    if (examples_.task.multi_label) {
      example.labels = config_.label_columns.empty()
                           ? label_set(table_, kLabel, config_.label_separator, classes_)
                           : label_set_of_columns(table_, kFirstLabel, config_.label_columns, classes_);
      return example;
    }
    if (examples_.task.layout == TaskLayout::kTable && table_.has(kLabel) && table_.list(kLabel) == nullptr &&
        table_.cell(kLabel).empty())
      table_.fail(kLabel, kEmptyLabel);
    if (examples_.task.kind == TaskKind::kRegression) {
      example.values = values_in(table_, examples_.task, config_);
    } else {
      const auto found = classes_.find(table_.cell(kLabel));
      if (found == classes_.end()) {
        table_.fail(kLabel, fmt::format("unknown label \"{}\"; the labels are {}", table_.cell(kLabel),
                                        examples_.task.labels.empty() ? "0, 1, 2, 3" : list_of(examples_.task.labels)));
      }
      example.label = found->second;
    }
    return example;
  }

 private:
  /// Puts markers around the row's two spans.
  void mark(std::string& text) {
    try {
      text = marked_text(text, nlohmann::json::parse(table_.cell(kSpans)));
    } catch (const DataError& error) {
      table_.fail(kSpans, error.what());
    }
  }

  const TaskExamples& examples_;
  const TableReader& table_;
  const TaskDataConfig& config_;
  std::unordered_map<std::string, int32_t> classes_;
  std::unordered_set<std::string> ids_;
};

/// Adds the rows of `examples.file` to `examples.texts`: layouts kGlue, kTable and kSwag. Errors: read_task().
void read_texts(TaskExamples& examples, const TaskDataConfig& config) {
  TableReader table(examples.file, wanted_columns(examples, config), table_options(examples, config));
  RowReader rows(examples, table, config);
  examples.has_labels = table.has(kLabel);
  if (has_label_columns(examples.task, config)) {
    examples.has_labels = true;
    for (size_t i = 0; i < config.label_columns.size(); ++i) examples.has_labels &= table.has(kFirstLabel + i);
  }
  while (table.next()) {
    if (table.has(kLanguage) && table.cell(kLanguage) != config.language) continue;
    examples.texts.push_back(rows.read(examples.texts.size()));
  }
  examples.skipped_rows = table.skipped_rows();
  if (examples.texts.empty()) {
    throw DataError(fmt::format("{}: the table has no rows{}", examples.file,
                                table.has(kLanguage) ? " of data.language " + config.language : ""));
  }
}

/// The values of the label's column in an own table, without repetition, in any order.
std::vector<std::string> labels_in_table(const std::string& path, const TaskDataConfig& config) {
  TableReader table(path, {{config.label_column, true}}, own_table_options(path, config));
  std::set<std::string> labels;
  while (table.next()) {
    if (table.cell(0).empty()) table.fail(0, kEmptyLabel);
    labels.insert(table.cell(0));
  }
  return {labels.begin(), labels.end()};
}

/// The label of a word: the last column. Throws DataError if the line has one column, the word.
std::string_view tag_of(const std::string& path, const ConllLine& line) {
  if (line.columns.size() > 1) return line.columns.back();
  throw DataError(fmt::format("{}:{}: no label: the line has one column, and the last is the label", path, line.line));
}

std::vector<std::string> tags_in_conll(const std::string& path) {
  std::set<std::string, std::less<>> tags;
  for_each_conll_line(path, [&](const ConllLine& line) {
    if (line.kind != ConllLine::Kind::kWord) return;
    tags.emplace(tag_of(path, line));
  });
  return {tags.begin(), tags.end()};
}

void read_sentences(TaskExamples& examples) {
  std::unordered_map<std::string_view, int32_t> tags;
  for (const std::string& label : examples.task.labels) tags.emplace(label, static_cast<int32_t>(tags.size()));
  TaggedSentence sentence;
  examples.has_labels = true;
  for_each_conll_line(examples.file, [&](const ConllLine& line) {
    if (line.kind == ConllLine::Kind::kDocument) {
      sentence.begins_document = true;
      return;
    }
    if (line.kind == ConllLine::Kind::kSentenceEnd) {
      examples.sentences.push_back(std::exchange(sentence, {}));
      return;
    }
    sentence.words.emplace_back(line.columns.front());
    if (line.columns.size() == 1 && examples.source.split == TaskSplit::kTest) {
      examples.has_labels = false;
      return;
    }
    const std::string_view tag = tag_of(examples.file, line);
    const auto found = tags.find(tag);
    if (found == tags.end())
      throw DataError(fmt::format("{}:{}: unknown label \"{}\"; the training file and the configuration do not have it",
                                  examples.file, line.line, tag));
    sentence.tags.push_back(found->second);
  });
}

void append_question_features(const TaskExamples& examples, const Tokenizer& tokenizer, const TaskDataConfig& config,
                              bool for_training, TaskFeatures& features) {
  SquadFeatureMaker maker(examples.squad, tokenizer, config);
  try {
    for (int32_t i = 0; i < static_cast<int32_t>(examples.squad.questions.size()); ++i)
      features.skipped += !maker.append(i, for_training, features.sequences, features.windows);
  } catch (const DataError& error) {
    if (examples.file.empty()) throw;
    throw DataError(examples.file + ": " + error.what());
  }
  features.cut = maker.cut();
}

}  // namespace

int64_t TaskExamples::size() const {
  if (task.kind == TaskKind::kQuestionAnswering) return static_cast<int64_t>(squad.questions.size());
  if (task.kind == TaskKind::kTokenClassification) return static_cast<int64_t>(sentences.size());
  return static_cast<int64_t>(texts.size());
}

std::pair<int64_t, int64_t> TaskFeatures::unit(int64_t index, int64_t choices) const {
  if (text_ends.empty()) return {index * choices, (index + 1) * choices};
  return {index == 0 ? 0 : text_ends[static_cast<size_t>(index - 1)], text_ends[static_cast<size_t>(index)]};
}

int64_t TaskFeatures::units(int64_t choices) const {
  return text_ends.empty() ? std::ssize(sequences) / choices : std::ssize(text_ends);
}

int64_t TaskFeatures::tokens_of(int64_t index, int64_t choices) const {
  const auto [begin, end] = unit(index, choices);
  int64_t tokens = 0;
  for (int64_t i = begin; i < end; ++i) tokens += std::ssize(sequences[static_cast<size_t>(i)].input_ids);
  return tokens;
}

int64_t TaskFeatures::most_sequences(int64_t choices) const {
  int64_t most = text_ends.empty() ? choices : 0;
  for (int64_t begin = 0; const int64_t end : text_ends) most = std::max(most, end - std::exchange(begin, end));
  return most;
}

std::vector<int64_t> TaskFeatures::logit_offsets() const {
  const bool by_token = kind == TaskKind::kTokenClassification || kind == TaskKind::kQuestionAnswering;
  std::vector<int64_t> offsets = {0};
  for (size_t text = 1; text <= text_ends.size(); ++text) offsets.push_back(static_cast<int64_t>(text) * num_outputs);
  if (!text_ends.empty()) return offsets;
  offsets.reserve(sequences.size() + 1);
  for (const TaskSequence& sequence : sequences) {
    const int64_t rows = by_token ? static_cast<int64_t>(sequence.input_ids.size()) : 1;
    offsets.push_back(offsets.back() + rows * num_outputs);
  }
  return offsets;
}

std::string TaskFeatures::cut_of(int64_t examples, const TaskDataConfig& config) const {
  const bool questions = kind == TaskKind::kQuestionAnswering;
  return fmt::format("{} of {} {} have more than data.{} {} tokens", cut, examples,
                     questions ? "questions" : "examples", questions ? "max_query_length" : "max_seq_length",
                     questions ? config.max_query_length : config.max_seq_length);
}

void sort_labels(std::vector<std::string>& labels) {
  const auto integer_of = [](const std::string& text) { return number_of<int64_t>(text); };
  const bool integers = std::ranges::all_of(labels, [&](const auto& label) { return integer_of(label).has_value(); });
  std::ranges::sort(labels, [&](const std::string& a, const std::string& b) {
    return integers && integer_of(a) != integer_of(b) ? integer_of(a) < integer_of(b) : a < b;
  });
}

void find_labels(TaskDefinition& task, const std::string& path, const TaskDataConfig& config,
                 const std::vector<std::string>& more, TaskUse use) {
  const bool own = task.layout == TaskLayout::kTable && task.kind == TaskKind::kClassification;
  const bool numbers = task.kind == TaskKind::kRegression && task.several_labels();
  if (!own && !numbers && task.layout != TaskLayout::kConll) return;
  if (has_label_columns(task, config) && !config.labels.empty())
    throw DataError("data.labels: want none with data.label_columns, whose names are the labels");
  task.labels = has_label_columns(task, config) ? config.label_columns : config.labels;
  if (task.labels.empty() && numbers) task.labels = number_names_in_table(path, config);
  if (task.labels.empty() && numbers) return;  // a single number has no name
  if (task.labels.empty()) {
    task.labels = !own ? has_entity_lines(path) ? labels_in_entity_lines(path, config) : tags_in_conll(path)
                  : task.multi_label ? label_sets_in_table(path, config)
                                     : labels_in_table(path, config);
    for (const std::string& label : more) {
      if (std::ranges::find(task.labels, label) == task.labels.end()) task.labels.push_back(label);
    }
    sort_labels(task.labels);
  }
  if (std::set<std::string>(task.labels.begin(), task.labels.end()).size() != task.labels.size())
    throw DataError("data.labels or data.label_columns has a label twice");
  if (task.multi_label) check_set_labels(task.labels, config.label_separator);
  for (const std::string& label : task.labels) {
    if (label.find_first_of("\t\r\n") != std::string::npos)
      throw DataError(fmt::format("{}: the label {} has a tab or a line break, which tables of predictions cannot hold",
                                  path, nlohmann::json(label).dump()));
  }
  if (use == TaskUse::kFeatures && task.labels.size() < 2)
    throw DataError(fmt::format("{}: want two labels or more, got {}", path, task.labels.size()));
}

TaskExamples read_task(const TaskDefinition& task, const TaskFile& source, const std::string& path,
                       const TaskDataConfig& config, TaskUse use) {
  TaskExamples examples;
  examples.task = task;
  examples.source = source;
  examples.file = path;
  if (!task.negative_label.empty() && std::ranges::find(task.labels, task.negative_label) == task.labels.end())
    throw DataError(fmt::format("data.negative_label: {} is none of the labels, which are {}", task.negative_label,
                                list_of(task.labels)));
  for (const std::string& label : task.labels) check_label(task.label_scheme, label);
  switch (task.layout) {
    case TaskLayout::kSquad:
      examples.squad = read_squad(path, {.no_answers = task.no_answers,
                                         .need_answers = source.split != TaskSplit::kTest,
                                         .for_scoring = use == TaskUse::kScoring});
      examples.has_labels = examples.squad.has_answers;
      break;
    case TaskLayout::kConll:
      has_entity_lines(path) ? read_entity_lines(examples, config) : read_sentences(examples);
      break;
    default:
      read_texts(examples, config);
  }
  return examples;
}

TaskFeatures make_features(const TaskExamples& examples, const Tokenizer& tokenizer, const TaskDataConfig& config,
                           bool for_training) {
  TaskFeatures features;
  features.kind = examples.task.kind;
  features.num_outputs = examples.task.num_outputs();
  features.multi_label = examples.task.multi_label;
  if (features.kind == TaskKind::kQuestionAnswering) {
    append_question_features(examples, tokenizer, config, for_training, features);
  } else if (features.kind == TaskKind::kTokenClassification) {
    append_sentence_features(examples, tokenizer, config, features);
  } else {
    append_text_features(examples, tokenizer, config, features);
  }
  return features;
}

int64_t choices_of(const TaskExamples& examples, int64_t expected) {
  if (examples.task.kind != TaskKind::kMultipleChoice) return 1;
  for (size_t i = 0; i < examples.texts.size(); ++i) {
    const auto choices = std::ssize(examples.texts[i].choices);
    if (expected == 0) expected = choices;
    if (choices != expected) {
      throw DataError(fmt::format("{}: example {} has {} choices, expected {}, as in the first", examples.file,
                                  examples.texts[i].id, choices, expected));
    }
  }
  return expected;
}

}  // namespace bert
