// Files of a fine-tuning task to examples, and examples to sequences of tokens.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/config.h"
#include "data/tasks/squad.h"
#include "data/tasks/squad_features.h"
#include "data/tasks/task_definition.h"
#include "data/tasks/task_sequence.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

/// An example of classification, regression, multiple choice or embeddings.
struct TextExample {
  std::string id;                    // of the file, or the number of the row from 0
  std::string text, text_pair;       // multiple choice: the context, and the start of its next sentence
  std::vector<std::string> choices;  // multiple choice: the ends of that sentence; embeddings: texts behind the pair
  int32_t label = -1;                // the class or the right choice; -1: the file has none
  std::vector<int32_t> labels = {};  // multi-label: the right ones, ascending
  std::vector<double> values = {};   // regression: one for each output
  double value = 0;                  // embeddings: the score, or the number of the class
};

/// A sentence of token classification.
struct TaggedSentence {
  std::vector<std::string> words;
  std::string text;           // in place of `words`: a text whose words the tokenizer finds
  std::vector<int32_t> tags;  // for each word, a number of TaskDefinition::labels; empty: the file has none
  bool begins_document = false;
};

/// The content of one file. One of the three lists is used, by the kind of the task.
struct TaskExamples {
  TaskDefinition task;
  TaskFile source;
  std::string file;          // path
  bool has_labels = false;   // every example has a label, a number, tags or answers
  int64_t skipped_rows = 0;  // rows without all columns, where TaskDefinition::skips_short_rows
  std::string remark;        // what the reader has changed, as a sentence for the user; empty: nothing
  std::vector<TextExample> texts;
  std::vector<TaggedSentence> sentences;
  SquadDataset squad;

  /// Number of examples (questions, sentences, rows).
  [[nodiscard]] int64_t size() const;
};

/// Sequences in the order of the examples. A model's logits for them are one array of floats, row-major:
///   kClassification       [sequences, labels]; [texts, labels] with text_ends
///   kRegression           [sequences, numbers]; likewise
///   kMultipleChoice       [sequences, 1]: the choices of an example are neighbours
///   kTokenClassification  [tokens of all sequences, labels]: sequences one after another, without padding
///   kQuestionAnswering    [tokens of all sequences, 2]: start and end; sequences as above
///   kEmbedding            [sequences, dimensions]: the texts of an example are neighbours
struct TaskFeatures {
  TaskKind kind = TaskKind::kClassification;
  int64_t num_outputs = 0;     // columns of the logits
  bool multi_label = false;    // TaskDefinition::multi_label
  bool start_markers = false;  // the sequences have the places of [E1] and [E2]: EntityMarkers::kStartMarkers
  int64_t cut = 0;      // examples (SQuAD: questions) with more tokens than there is room for, whose rest is lost
  int64_t skipped = 0;  // training questions whose answer cannot be found in the words of the context
  std::vector<TaskSequence> sequences;
  /// One for each sequence: kQuestionAnswering, not for training; kTokenClassification of LongTexts::kWindows.
  std::vector<SquadWindow> windows;
  /// Classification and regression of LongTexts::kWindows: behind the last sequence of each text. Empty: a text is a
  /// sequence.
  std::vector<int64_t> text_ends;

  /// True if there is a row of logits for each text: classification and regression.
  [[nodiscard]] bool has_text_rows() const {
    return kind == TaskKind::kClassification || kind == TaskKind::kRegression;
  }
  /// The sequences [first, second) of unit `index`, which is a text, or `choices` sequences in a row.
  [[nodiscard]] std::pair<int64_t, int64_t> unit(int64_t index, int64_t choices) const;
  [[nodiscard]] int64_t units(int64_t choices) const;
  /// The tokens of a unit.
  [[nodiscard]] int64_t tokens_of(int64_t index, int64_t choices) const;
  /// The most sequences of a unit.
  [[nodiscard]] int64_t most_sequences(int64_t choices) const;

  /// The place of each sequence's logits in the array: those of sequence i, with text_ends of text i, are [result[i],
  /// result[i + 1]).
  [[nodiscard]] std::vector<int64_t> logit_offsets() const;

  /// The number of examples that were cut, of `examples`, and their limit: "3 of 20 questions have more than ...".
  [[nodiscard]] std::string cut_of(int64_t examples, const TaskDataConfig& config) const;
};

/// Sorts labels as integers if all are, else by their bytes.
void sort_labels(std::vector<std::string>& labels);

/// kScoring: predictions of the examples are compared with the right answers, as the official scorers do, which read less
/// of a file of SQuAD: SquadReading::for_scoring.
enum class TaskUse : uint8_t { kFeatures, kScoring };

/// Adds the labels of `config`, or else those of the training file `path` and `more`, sorted, to a task without labels of
/// its own (ner, text-classification, multi-label-classification). The numbers of text-regression, if they are several,
/// are named by data.label_columns or data.labels, else LABEL_0 and so on. Throws DataError, also for one label alone that
/// is to be learnt, InputMissing, IoError.
void find_labels(TaskDefinition& task, const std::string& path, const TaskDataConfig& config,
                 const std::vector<std::string>& more = {}, TaskUse use = TaskUse::kFeatures);

/// Reads `path` as the file `source` of `task`, whose labels are known. Training and development files must have labels;
/// those of test files may be absent. Throws DataError with the file, line and column (SQuAD: with the place in the JSON
/// and the question's id) for rows that are short or blank, labels that are unknown or empty, numbers that are not finite,
/// duplicate ids, answers that are not in the context, invalid UTF-8, and files without examples; InputMissing; IoError.
TaskExamples read_task(const TaskDefinition& task, const TaskFile& source, const std::string& path,
                       const TaskDataConfig& config, TaskUse use = TaskUse::kFeatures);

/// Tokenizes the examples. The sequences equal those of Google's run_classifier.py and run_squad.py, without padding.
/// For token classification, a sentence that is too long becomes several sequences, cut between words; the first piece
/// of a word has its label (transformers' run_ner.py). With LongTexts::kWindows sentences, texts, and the longer text of a
/// pair become windows that overlap: text_windows(). A word then has its label, and its number, in one window alone.
/// `for_training` makes labels; without it, SQuAD's have no positions.
/// Throws DataError, with the file and the question, if max_seq_length leaves no room for a text beside the special tokens or the question.
TaskFeatures make_features(const TaskExamples& examples, const Tokenizer& tokenizer, const TaskDataConfig& config,
                           bool for_training);

/// The number of sequences of each example, the same for all: 1 but for multiple choice. Throws DataError for an example
/// with another number of choices than `expected`, or, if that is 0, than the first.
int64_t choices_of(const TaskExamples& examples, int64_t expected);

}  // namespace bert
