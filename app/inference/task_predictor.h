// A fine-tuned BERT that is asked for answers. Names as in Hugging Face's pipelines text-classification,
// token-classification and question-answering.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/inference/predictor.h"
#include "app/inference/pretrained.h"
#include "app/inference/task_model.h"
#include "data/tasks/task_data.h"

namespace bert {

/// A text, and the second text of a pair; for answers the context and the question about it.
struct TaskInput {
  std::string text, second;
};

/// The best class of a text. Of a model of numbers, `label` is empty and `score` is the number.
struct LabelScore {
  std::string label;
  double score = 0;  // probability
};

/// A word, which is a part of the text between spaces, with its best class.
struct WordLabel {
  std::string word, label;
  double score = 0;  // probability
};

struct ExtractedAnswer {
  std::string answer;  // a part of the context; "": SQuAD 2.0, the context has no answer
  double score = 0;    // probability among the n best
};

/// Texts are tokenized as in fine-tuning, packed without padding, and cut at the positions of the model; a longer context
/// is read in windows, a longer sentence in parts. Answers are in the order of the inputs.
class TaskPredictor {
 public:
  /// Copies the weights. Throws DataError if they are not those of the task's model, c10::Error for options.int8.
  TaskPredictor(const Pretrained& pretrained, const PredictorOptions& options);

  [[nodiscard]] TaskKind kind() const { return task_.kind; }
  /// kClassification and kRegression.
  [[nodiscard]] std::vector<LabelScore> classify(const std::vector<TaskInput>& inputs);
  /// kTokenClassification. Words without a token have no entry.
  [[nodiscard]] std::vector<std::vector<WordLabel>> tag(const std::vector<TaskInput>& inputs);
  /// kQuestionAnswering. Throws DataError for a context without words.
  [[nodiscard]] std::vector<ExtractedAnswer> answer(const std::vector<TaskInput>& inputs);

 private:
  [[nodiscard]] TaskFeatures features_of(const TaskExamples& examples) const;
  [[nodiscard]] std::vector<float> logits_of(const TaskFeatures& features);

  PredictorOptions options_;
  TaskDefinition task_;
  TaskDataConfig config_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  TaskModel model_;
};

}  // namespace bert
