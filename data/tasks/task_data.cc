#include "data/tasks/task_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "data/io/error.h"
#include "data/io/text_parts.h"
#include "data/tasks/conll.h"
#include "data/tasks/read_texts.h"
#include "data/tasks/text_features.h"

namespace bert {
namespace {

/// Sorts labels as integers if all are, else by their bytes.
void sort_labels(std::vector<std::string>& labels) {
  const auto integer_of = [](const std::string& text) { return number_of<int64_t>(text); };
  const bool integers = std::ranges::all_of(labels, [&](const auto& label) { return integer_of(label).has_value(); });
  std::ranges::sort(labels, [&](const std::string& a, const std::string& b) {
    return integers && integer_of(a) != integer_of(b) ? integer_of(a) < integer_of(b) : a < b;
  });
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

std::vector<int64_t> TaskFeatures::logit_offsets() const {
  const bool by_token = kind == TaskKind::kTokenClassification || kind == TaskKind::kQuestionAnswering;
  std::vector<int64_t> offsets = {0};
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

void find_labels(TaskDefinition& task, const std::string& path, const TaskDataConfig& config,
                 const std::vector<std::string>& more) {
  const bool own = task.layout == TaskLayout::kTable && task.kind == TaskKind::kClassification;
  if (!own && task.layout != TaskLayout::kConll) return;
  task.labels = config.labels;
  if (task.labels.empty()) {
    task.labels = own ? labels_in_table(path, config) : tags_in_conll(path);
    for (const std::string& label : more) {
      if (std::ranges::find(task.labels, label) == task.labels.end()) task.labels.push_back(label);
    }
    sort_labels(task.labels);
  }
  if (std::set<std::string>(task.labels.begin(), task.labels.end()).size() != task.labels.size())
    throw DataError("data.labels has a label twice");
  if (task.labels.size() < 2)
    throw DataError(fmt::format("{}: want two labels or more, got {}", path, task.labels.size()));
}

TaskExamples read_task(const TaskDefinition& task, const TaskFile& source, const std::string& path,
                       const TaskDataConfig& config, TaskUse use) {
  TaskExamples examples;
  examples.task = task;
  examples.source = source;
  examples.file = path;
  switch (task.layout) {
    case TaskLayout::kSquad:
      examples.squad = read_squad(path, {.no_answers = task.no_answers,
                                         .need_answers = source.split != TaskSplit::kTest,
                                         .for_scoring = use == TaskUse::kScoring});
      examples.has_labels = examples.squad.has_answers;
      break;
    case TaskLayout::kConll:
      read_sentences(examples);
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
