// Tables of pairs, triplets and longer rows of texts for sentence embeddings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/config.h"
#include "data/tasks/task_data.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

/// The columns of a table of texts. Empty: by the rules of sentence-transformers, all columns are texts in their order, but
/// for the one with the name "score", "scores", "label" or "labels".
struct RowColumns {
  std::vector<std::string> texts = {};  // anchor, positive, negatives
  std::string label = {};
};

/// The meaning of a row's label: a number; the name of a class, whose number is its place among all names, which sort as
/// numbers if all are numbers; or nothing that is read.
enum class RowLabels : uint8_t { kNumbers, kClasses, kUnread };

/// Reads the rows of the table `path`, or the questions of a file of SQuAD with their paragraphs. The texts are
/// TextExample::text, text_pair and choices. In JSON lines, Parquet and Arrow the last column of texts may have lists, as
/// long in all rows: the losses of sentence-transformers take equal columns. With a column for labels, `has_labels` is
/// true and `value` is the label; a list of two numbers, the scores of the positive and the negative of three texts, is
/// their difference. With kClasses, task.labels has the names.
/// Throws DataError with file, line and column for a missing column, an empty text, another number of texts than in the
/// first row, and a label that is not finite; InputMissing; IoError.
TaskExamples read_text_rows(const std::string& path, const RowColumns& columns, RowLabels labels = RowLabels::kNumbers);

/// The number of texts in each row.
int64_t texts_in_row(const TaskExamples& rows);

/// [CLS] text [SEP] of each text, the texts of a row side by side, with the row's label as `value`. `prompts` are put before
/// the texts of the columns in their order, the last one before all further ones. `repeats`: so many sequences of each
/// text.
TaskFeatures make_row_features(const TaskExamples& rows, const Tokenizer& tokenizer, const TaskDataConfig& config,
                               const std::vector<std::string>& prompts = {}, int64_t repeats = 1);

}  // namespace bert
