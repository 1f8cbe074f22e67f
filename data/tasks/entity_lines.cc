#include "data/tasks/entity_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>
#include <utility>

#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/text_parts.h"
#include "data/tasks/label_schemes.h"
#include "data/tasks/span_json.h"
#include "data/tasks/task_json.h"
#include "data/text/text_input.h"

namespace bert {
namespace {

using nlohmann::json;

struct EntityInText {
  TextSpan characters;
  std::string label;
  int64_t first = 0, last = 0;  // words
};

std::string text_of(const EntityInText& entity) {
  return fmt::format("[{}, {}] {}", entity.characters.begin, entity.characters.end, entity.label);
}

/// A row of the file.
struct EntityRow {
  std::string text;
  std::vector<TextSpan> words;  // bytes of the text
  std::vector<EntityInText> entities;
  bool has_entities = false;  // the row has a list of them, perhaps an empty one
  int64_t widened = 0;        // entities that begin or end inside a word
};

EntityInText entity_of(const json& value) {
  EntityInText entity{.characters = span_of_json(value), .label = {}};
  const json* label = value.is_array() && value.size() > 2           ? &value[2]
                      : value.is_object() && value.contains("label") ? &value["label"]
                                                                     : nullptr;
  if (label == nullptr || !label->is_string() || label->get_ref<const std::string&>().empty())
    throw DataError(fmt::format("want a label in {}", value.dump()));
  entity.label = label->get<std::string>();
  if (entity.label.find_first_of(" \t\r\n") != std::string::npos)
    throw DataError(fmt::format("the label \"{}\" has white space; want a label without", entity.label));
  return entity;
}

/// Finds the words of an entity. Returns true if it begins or ends inside a word.
bool put_words(const CharacterPlaces& characters, const std::vector<TextSpan>& words, EntityInText& entity) {
  const TextSpan bytes = characters.bytes_of(entity.characters);
  const auto first = std::ranges::upper_bound(words, bytes.begin, {}, &TextSpan::end);
  const auto behind = std::ranges::lower_bound(words, bytes.end, {}, &TextSpan::begin);
  if (first >= behind) throw DataError(fmt::format("the entity {} has no word", text_of(entity)));
  entity.first = first - words.begin();
  entity.last = behind - words.begin() - 1;
  return first->begin < bytes.begin || (behind - 1)->end > bytes.end;
}

/// The list of entities of a row; nullptr if it has none.
const json* entities_of(const json& row, const TaskDataConfig& config) {
  for (const std::string& key :
       {config.label_column, std::string("entities"), std::string("spans"), std::string("labels")}) {
    const auto found = row.find(key);
    if (found != row.end() && !found->is_null()) return &*found;
  }
  return nullptr;
}

EntityRow read_row(const json& object, const BasicTokenizer& splitter, const TaskDataConfig& config) {
  if (!object.is_object()) throw DataError(fmt::format("want an object, got {}", object.type_name()));
  const auto text = object.find(config.text_column);
  if (text == object.end() || !text->is_string())
    throw DataError(fmt::format("want a text in the field \"{}\" (data.text_column)", config.text_column));
  EntityRow row;
  row.text = text->get<std::string>();
  splitter.for_each_word<false>(row.text, [&](const Word& word) { row.words.push_back(word.span); });
  if (row.words.empty()) throw DataError("the text has no words");
  const json* entities = entities_of(object, config);
  row.has_entities = entities != nullptr;
  if (entities == nullptr) return row;
  if (!entities->is_array()) throw DataError(fmt::format("want a list of entities, got {}", entities->type_name()));
  const CharacterPlaces characters(row.text);
  for (const json& value : *entities) {
    EntityInText& entity = row.entities.emplace_back(entity_of(value));
    row.widened += put_words(characters, row.words, entity);
  }
  std::ranges::stable_sort(row.entities, {}, [](const EntityInText& entity) { return entity.characters.begin; });
  for (size_t i = 1; i < row.entities.size(); ++i) {
    const EntityInText &before = row.entities[i - 1], &entity = row.entities[i];
    if (entity.first > before.last) continue;
    const bool overlap = entity.characters.begin < before.characters.end;
    throw DataError(fmt::format("the entities {} and {} {}; want each word in one entity at most", text_of(before),
                                text_of(entity), overlap ? "overlap" : "share a word"));
  }
  return row;
}

/// Calls take(row) for each row of the file.
template <class Take>
void for_each_row(const std::string& path, const TaskDataConfig& config, Take&& take) {
  const BasicTokenizer splitter(TokenizerConfig{.do_lower_case = false});
  const MappedFile file(path);
  std::string_view rest = file.view();
  check_is_plain_text(path, rest);
  bool any = false;
  for (int64_t line = 1; !rest.empty(); ++line) {
    const std::string_view text = take_part(rest, '\n');
    if (trimmed(text).empty()) continue;
    const json object = parse_task_json(text, path, line);
    try {
      take(read_row(object, splitter, config));
    } catch (const DataError& error) {
      file.expect_whole();
      throw DataError(fmt::format("{}:{}: {}", path, line, error.what()));
    }
    any = true;
  }
  file.expect_whole();
  if (!any) throw DataError(path + ": the file has no rows");
}

/// The label of each word.
std::vector<std::string> labels_of_words(const EntityRow& row, LabelScheme scheme) {
  std::vector<std::string> labels(row.words.size(), "O");
  const EntityInText* before = nullptr;
  for (const EntityInText& entity : row.entities) {
    const bool after_alike = before != nullptr && before->last + 1 == entity.first && before->label == entity.label;
    const int64_t words = entity.last + 1 - entity.first;
    for (int64_t word = 0; word < words; ++word) {
      labels[static_cast<size_t>(entity.first + word)] =
          fmt::format("{}-{}", letter_in_scheme(scheme, word, words, after_alike), entity.label);
    }
    before = &entity;
  }
  return labels;
}

}  // namespace

bool has_entity_lines(const std::string& path) { return path.ends_with(".jsonl") || path.ends_with(".json"); }

void read_entity_lines(TaskExamples& examples, const TaskDataConfig& config) {
  std::unordered_map<std::string, int32_t> numbers;
  for (const std::string& label : examples.task.labels) numbers.emplace(label, static_cast<int32_t>(numbers.size()));
  const LabelScheme scheme =
      config.label_scheme == LabelScheme::kAny ? scheme_of_labels(examples.task.labels) : config.label_scheme;
  examples.has_labels = true;
  int64_t widened = 0, entities = 0;
  for_each_row(examples.file, config, [&](const EntityRow& row) {
    TaggedSentence& sentence = examples.sentences.emplace_back();
    for (const TextSpan& word : row.words)
      sentence.words.push_back(
          row.text.substr(static_cast<size_t>(word.begin), static_cast<size_t>(word.end - word.begin)));
    if (!row.has_entities) {
      if (examples.source.split != TaskSplit::kTest)
        throw DataError(
            fmt::format("no list of entities in the field \"{}\" (data.label_column), entities, spans or "
                        "labels",
                        config.label_column));
      examples.has_labels = false;
      return;
    }
    widened += row.widened;
    entities += std::ssize(row.entities);
    for (const std::string& label : labels_of_words(row, scheme)) {
      const auto found = numbers.find(label);
      if (found == numbers.end()) {
        throw DataError(
            fmt::format("unknown label \"{}\"; the training file and the configuration do not have it", label));
      }
      sentence.tags.push_back(found->second);
    }
  });
  if (widened > 0) {
    examples.remark = fmt::format("{}: {} of {} entities begin or end inside a word, and were widened to whole words",
                                  examples.file, widened, entities);
  }
}

std::vector<std::string> labels_in_entity_lines(const std::string& path, const TaskDataConfig& config) {
  std::set<std::string> labels = {"O"};
  for_each_row(path, config, [&](const EntityRow& row) {
    for (const EntityInText& entity : row.entities) {
      for (const char letter : letters_of(config.label_scheme))
        labels.insert(fmt::format("{}-{}", letter, entity.label));
    }
  });
  return {labels.begin(), labels.end()};
}

}  // namespace bert
