// The fine-tuning tasks: one table of their kinds, labels, files and metrics.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/config.h"

namespace bert {

/// The head of a task, and the shape of its logits (TaskFeatures, data/tasks/task_data.h).
enum class TaskKind : uint8_t {
  kClassification,       // one of the labels for a text or a pair of texts
  kRegression,           // one number or several for a text or a pair of texts
  kTokenClassification,  // one of the labels for each word
  kMultipleChoice,       // one of the choices of each example
  kQuestionAnswering,    // a span of the context, or no answer
  kEmbedding             // a vector for each text
};

/// The format of a task's files.
enum class TaskLayout : uint8_t {
  kGlue,   // TSV without quoting: a quote is a character of the text
  kTable,  // CSV (RFC 4180), TSV or JSON lines, by the extension
  kConll,  // one word a line with its columns; an empty line between sentences. Or JSON lines (entity_lines.h)
  kSwag,   // CSV with a context, the start of a sentence, and four endings
  kSquad   // JSON of SQuAD 1.1 or 2.0, or JSON lines with a question each
};

enum class TaskSplit : uint8_t { kTrain, kDev, kTest };

/// "train", "dev" or "test".
const char* split_name(TaskSplit split);

/// The columns of a text task, by their names.
struct TaskColumns {
  std::string text = {}, text_pair = {};  // text_pair empty: single texts
  std::string label = {};
  std::string id = {};                   // empty, or absent in a file: the number of the row, from 0
  std::vector<std::string> header = {};  // of training and development files without one (CoLA)
  std::string language = {};             // rows of other languages than TaskDataConfig::language are left out
};

/// A file of a task.
struct TaskFile {
  TaskSplit split = TaskSplit::kTrain;
  std::string part;                // tells the files of a split apart: "", "matched", "mismatched" or "diagnostic"
  std::vector<std::string> names;  // the first of these that exists in the task's directory; {} is the language
  std::string output;              // predictions in the run directory; for a test file the name of the submission
  std::optional<TaskColumns> columns = {};  // in place of those of the task
};

struct TaskDefinition {
  std::string name = {};
  TaskKind kind = TaskKind::kClassification;
  TaskLayout layout = TaskLayout::kGlue;
  std::vector<std::string> labels = {};  // class i is labels[i]; empty: found in the training file, or none
  std::vector<TaskFile> files;
  std::vector<std::string> metrics;  // of the development set, as score_task() names them; the main one first
  TaskColumns columns = {};          // of kGlue and kTable
  std::vector<std::pair<std::string, std::string>> aliases = {};  // other words for labels in files
  bool skips_short_rows = false;    // the official training file has rows without all columns
  bool no_answers = false;          // kQuestionAnswering: a question may have no answer (SQuAD 2.0)
  bool multi_label = false;         // kClassification: any number of the labels is right, each by itself
  bool scores = false;              // kRegression: the number is between 0 and 1, and the model gives its logit
  std::string negative_label = {};  // TaskDataConfig::negative_label, of apply_settings()
  LabelScheme label_scheme = LabelScheme::kAny;  // likewise

  /// Columns of the head's logits: the number of labels; 2 for answers (start, end); 1 for a choice, or a number without
  /// a name.
  [[nodiscard]] int64_t num_outputs() const;
  /// The metric that chooses the best checkpoint; smaller_is_better() says how.
  [[nodiscard]] const std::string& main_metric() const { return metrics.front(); }
  /// True if a row of the user's own table may have several labels or numbers.
  [[nodiscard]] bool several_labels() const {
    return multi_label || (layout == TaskLayout::kTable && kind == TaskKind::kRegression && !scores);
  }
};

/// True for the name of a loss or of an error.
bool smaller_is_better(const std::string& metric);

/// The names of all tasks: squad-v1, squad-v2, cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, xnli, ner, swag,
/// text-classification, multi-label-classification, text-regression, rerank, embedding.
const std::vector<std::string>& task_names();

/// The kind of the task of this name; empty if there is none.
std::optional<TaskKind> kind_of_task(const std::string& name);

/// The definition of a task. Throws std::out_of_range for a name that is not one of task_names().
TaskDefinition task_definition(const std::string& name);

/// Adds to `task` what `config` says about its labels, and the metrics of relations if there is a negative label.
void apply_settings(TaskDefinition& task, const TaskDataConfig& config);

/// The path of `file` in `directory`: the first of its names, in `language`, that exists; empty if none does.
std::string find_task_file(const TaskFile& file, const std::string& directory, const std::string& language = "");

}  // namespace bert
