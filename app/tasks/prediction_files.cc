#include "app/tasks/prediction_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <unordered_map>

#include "app/tasks/label_set_scoring.h"
#include "data/io/error.h"
#include "data/tasks/conll.h"
#include "data/tasks/label_sets.h"
#include "data/tasks/table_reader.h"

namespace bert {
namespace {

constexpr const char* kPredictionColumn = "prediction";

/// `value` as JSON. Google's files have ASCII alone.
std::string as_json(const nlohmann::json& value) { return value.dump(-1, ' ', /*ensure_ascii=*/true); }

/// An object with a member for each question, as Python's json.dumps(indent=4) writes it.
std::string by_question(const SquadDataset& data, const std::function<std::string(size_t)>& value) {
  std::string text = "{";
  for (size_t i = 0; i < data.questions.size(); ++i)
    text += fmt::format("{}\n    {}: {}", i == 0 ? "" : ",", as_json(data.questions[i].id), value(i));
  return text + "\n}\n";
}

/// The label or number that stands for example `index`.
std::string prediction_text(const TaskExamples& examples, const TaskPredictions& predictions, size_t index) {
  if (examples.task.kind == TaskKind::kRegression) {
    const auto columns = static_cast<size_t>(examples.task.num_outputs());
    return fmt::format("{}", fmt::join(std::span(predictions.values).subspan(index * columns, columns), "\t"));
  }
  const auto label = static_cast<size_t>(predictions.classes[index]);
  return examples.task.kind == TaskKind::kMultipleChoice ? std::to_string(label) : examples.task.labels[label];
}

/// A number from 0 for each label, or for each choice.
std::unordered_map<std::string, int32_t> class_numbers(const TaskExamples& examples) {
  std::unordered_map<std::string, int32_t> numbers;
  for (const std::string& label : examples.task.labels) numbers.emplace(label, static_cast<int32_t>(numbers.size()));
  if (examples.task.kind == TaskKind::kMultipleChoice) {
    for (size_t i = 0; i < examples.texts.front().choices.size(); ++i)
      numbers.emplace(std::to_string(i), static_cast<int32_t>(i));
  }
  return numbers;
}

/// The names of the columns of a prediction.
std::vector<std::string> prediction_columns(const TaskDefinition& task) {
  if (task.kind != TaskKind::kRegression || task.num_outputs() == 1) return {kPredictionColumn};
  std::vector<std::string> names;
  for (const std::string& label : task.labels) names.push_back(fmt::format("{}:{}", kPredictionColumn, label));
  return names;
}

}  // namespace

std::string submission_table(const TaskExamples& examples, const TaskPredictions& predictions) {
  std::string text = fmt::format("index\t{}\n", fmt::join(prediction_columns(examples.task), "\t"));
  for (size_t i = 0; i < examples.texts.size(); ++i)
    text += fmt::format("{}\t{}\n", examples.texts[i].id, prediction_text(examples, predictions, i));
  return text;
}

std::string tagged_lines(const TaskExamples& examples, const TaskPredictions& predictions) {
  std::string text;
  for (size_t i = 0; i < examples.sentences.size(); ++i) {
    const TaggedSentence& sentence = examples.sentences[i];
    if (sentence.begins_document) text += "-DOCSTART-\n\n";
    for (size_t word = 0; word < sentence.words.size(); ++word) {
      text += sentence.words[word] + ' ';
      if (examples.has_labels) text += examples.task.labels[static_cast<size_t>(sentence.tags[word])] + ' ';
      text += predictions.tags[i][word] + '\n';
    }
    text += '\n';
  }
  return text;
}

std::string predictions_json(const SquadDataset& data, const std::vector<QuestionAnswers>& answers, double threshold) {
  return by_question(data, [&](size_t i) { return as_json(answers[i].at_threshold(threshold)); });
}

std::string n_best_json(const SquadDataset& data, const std::vector<QuestionAnswers>& answers) {
  return by_question(data, [&](size_t i) {
    std::string list = "[";
    for (const ScoredSpan& span : answers[i].n_best) {
      list += fmt::format(
          "{}\n        {{\n            \"text\": {},\n            \"probability\": {},\n            \"start_logit\": "
          "{},\n"
          "            \"end_logit\": {}\n        }}",
          list.size() > 1 ? "," : "", as_json(span.text), as_json(span.probability), as_json(span.start_logit),
          as_json(span.end_logit));
    }
    return list + "\n    ]";
  });
}

std::string null_odds_json(const SquadDataset& data, const std::vector<QuestionAnswers>& answers) {
  return by_question(data, [&](size_t i) { return as_json(answers[i].null_score_diff); });
}

TaskPredictions read_submission_table(const TaskExamples& examples, const PredictionFiles& files) {
  enum : size_t { kIndex, kPrediction, kFirstScore };  // of several numbers the others follow the first prediction
  const std::string& path = files.predictions;
  const bool sets = examples.task.multi_label;
  std::vector<TableColumn> columns = {{"index"}};
  for (const std::string& name : prediction_columns(examples.task)) columns.push_back({name});
  for (size_t i = 0; sets && i < examples.task.labels.size(); ++i)
    columns.push_back({std::string(kScoreColumn) + examples.task.labels[i], false});
  const size_t scored = columns.size() - kFirstScore, numbers = columns.size() - kPrediction;
  TableReader table(path, columns, {.format = TableFormat::kTsv, .header = {}});
  std::unordered_map<std::string_view, size_t> places;
  for (size_t i = 0; i < examples.texts.size(); ++i) places.emplace(examples.texts[i].id, i);
  const std::unordered_map<std::string, int32_t> classes = class_numbers(examples);
  const bool regression = examples.task.kind == TaskKind::kRegression;
  TaskPredictions predictions;
  if (sets) {
    predictions.sets.resize(places.size());
    bool all = true;
    for (size_t i = 0; i < scored; ++i) all &= table.has(kFirstScore + i);
    if (all) predictions.scores.resize(places.size() * scored);
  } else if (regression) {
    predictions.values.resize(places.size() * numbers);
  } else {
    predictions.classes.resize(places.size());
  }
  std::vector<bool> seen(places.size());
  while (table.next()) {
    const auto place = places.find(table.cell(kIndex));
    if (place == places.end())
      table.fail(kIndex, fmt::format("{} has no example \"{}\"", examples.file, table.cell(kIndex)));
    if (seen[place->second]) table.fail(kIndex, fmt::format("\"{}\" is there twice", table.cell(kIndex)));
    seen[place->second] = true;
    if (sets) {
      predictions.sets[place->second] = label_set(table, kPrediction, files.label_separator, classes);
      for (size_t i = 0; i < scored && !predictions.scores.empty(); ++i)
        predictions.scores[place->second * scored + i] = number_in_cell(table, kFirstScore + i);
      continue;
    }
    if (regression) {
      for (size_t i = 0; i < numbers; ++i)
        predictions.values[place->second * numbers + i] = number_in_cell(table, kPrediction + i);
      continue;
    }
    const auto found = classes.find(table.cell(kPrediction));
    if (found == classes.end()) {
      const bool own = examples.task.layout == TaskLayout::kTable;
      table.fail(kPrediction, fmt::format("unknown label \"{}\"{}", table.cell(kPrediction),
                                          own ? "; data.labels must have all labels" : ""));
    }
    predictions.classes[place->second] = found->second;
  }
  for (size_t i = 0; i < seen.size(); ++i) {
    if (!seen[i])
      throw DataError(
          fmt::format("{}: no prediction for the example \"{}\" of {}", path, examples.texts[i].id, examples.file));
  }
  return predictions;
}

TaskPredictions read_tagged_lines(const TaskExamples& examples, const std::string& path) {
  TaskPredictions predictions;
  std::vector<std::string> tags;
  const auto fail = [&](const ConllLine& line, const std::string& message) {
    throw DataError(fmt::format("{}:{}: {}", path, line.line, message));
  };
  for_each_conll_line(path, [&](const ConllLine& line) {
    if (line.kind == ConllLine::Kind::kDocument) return;
    const size_t at = predictions.tags.size();
    if (at >= examples.sentences.size()) fail(line, fmt::format("{} has fewer sentences", examples.file));
    const std::vector<std::string>& words = examples.sentences[at].words;
    if (line.kind == ConllLine::Kind::kSentenceEnd) {
      if (tags.size() != words.size())
        fail(line, fmt::format("the sentence has {} words, in {} {}", tags.size(), examples.file, words.size()));
      predictions.tags.push_back(std::move(tags));
      tags.clear();
      return;
    }
    if (line.columns.size() < 2) fail(line, "want a word and its label");
    if (tags.size() >= words.size() || line.columns.front() != words[tags.size()]) {
      fail(line, fmt::format("want the word \"{}\" of {}, got \"{}\"",
                             tags.size() < words.size() ? words[tags.size()] : "(end of the sentence)", examples.file,
                             line.columns.front()));
    }
    tags.emplace_back(line.columns.back());
  });
  if (predictions.tags.size() != examples.sentences.size()) {
    throw DataError(fmt::format("{}: {} sentences, and {} has {}", path, predictions.tags.size(), examples.file,
                                examples.sentences.size()));
  }
  return predictions;
}

}  // namespace bert
