// Texts with entities as spans of characters, in JSON lines, for token classification.
#pragma once

#include <string>
#include <vector>

#include "data/config.h"
#include "data/tasks/task_data.h"

namespace bert {

/// True if the name of the file says JSON lines: .jsonl or .json.
bool has_entity_lines(const std::string& path);

/// Adds the rows of `examples.file` as sentences, with labels of config.label_scheme, or where that is kAny, of
/// scheme_of_labels(). A row is an object with config.text_column, and a list of spans in config.label_column, or in
/// entities, spans or labels: [start, end, label], or objects with start and end (or start_offset and end_offset) and
/// label. White space, punctuation and ideographs end a word. A word of which an entity has a part belongs to it as a
/// whole; the count is in examples.remark. Throws DataError with file and line for values of other types, spans that
/// are not in the text or have no word, entities that overlap or share a word, labels that are unknown, texts without
/// words, and files without rows; InputMissing; IoError.
void read_entity_lines(TaskExamples& examples, const TaskDataConfig& config);

/// O, and the labels of the file's entities in all forms of config.label_scheme. Throws as read_entity_lines().
std::vector<std::string> labels_in_entity_lines(const std::string& path, const TaskDataConfig& config);

}  // namespace bert
