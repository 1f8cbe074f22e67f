// Tables of texts, pairs of texts and choices to examples.
#pragma once

#include "data/tasks/task_data.h"

namespace bert {

/// Adds the rows of `examples.file` to `examples.texts`: layouts kGlue, kTable and kSwag. Errors: read_task().
void read_texts(TaskExamples& examples, const TaskDataConfig& config);

/// The values of the label's column in an own table, without repetition, in any order.
std::vector<std::string> labels_in_table(const std::string& path, const TaskDataConfig& config);

}  // namespace bert
