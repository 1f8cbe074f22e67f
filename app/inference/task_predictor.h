// A fine-tuned BERT that is asked for answers. Names as in Hugging Face's pipelines text-classification,
// token-classification and question-answering.
#pragma once

#include <cstdint>
#include <span>
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

/// An input as the sequences of its tokens.
struct EncodedInput {
  TaskInput input;
  TaskFeatures features;
  /// The tokens that are computed, special ones included.
  [[nodiscard]] int64_t tokens() const;
};

/// A class of a text. Of a model of numbers, `label` is empty and `score` is the number.
struct LabelScore {
  std::string label;
  double score = 0;  // probability
};

/// A word, which is a part of the text between spaces, with its best class.
struct WordLabel {
  std::string word, label;
  double score = 0;            // probability
  int64_t begin = 0, end = 0;  // characters of the text: the word is [begin, end)
};

struct ExtractedAnswer {
  std::string answer;          // a part of the context; "": SQuAD 2.0, the context has no answer
  double score = 0;            // probability among the n best
  int64_t begin = 0, end = 0;  // characters of the context: the answer is [begin, end)
};

/// The logits of all sequences, as TaskFeatures describes, in batches of `options` (whose device and dtype are those of
/// `model`). `choices` sequences in a row belong to one example.
std::vector<float> task_logits(const TaskInference& model, const TaskFeatures& features, int64_t choices,
                               const PredictorOptions& options);

/// Texts are tokenized and cut as in fine-tuning (text_settings()), and
/// packed without padding; a longer context is read in windows, a longer sentence in parts. Answers are in the order of the inputs. Any number of threads may call
/// one predictor at once.
class TaskPredictor {
 public:
  /// Copies the weights. Throws DataError if they are not those of the task's model, c10::Error for wrong options.
  TaskPredictor(const Pretrained& pretrained, const PredictorOptions& options);

  [[nodiscard]] TaskKind kind() const { return task_.kind; }
  [[nodiscard]] const Tokenizer& tokenizer() const { return *tokenizer_; }
  /// The input for visit_answers(), which then tokenizes nothing. Throws TextError with index 0 for an input without an
  /// answer.
  [[nodiscard]] EncodedInput encode(TaskInput input) const;
  /// kClassification: the `top_k` best classes of each input, best first. kRegression: one number for each.
  [[nodiscard]] std::vector<std::vector<LabelScore>> classify(const std::vector<TaskInput>& inputs,
                                                              int64_t top_k = 1) const;
  /// kTokenClassification. Words without a token have no entry.
  [[nodiscard]] std::vector<std::vector<WordLabel>> tag(const std::vector<TaskInput>& inputs) const;
  /// kQuestionAnswering: the answer to each input, and after it the next best, at most `top_k` in all. The first of SQuAD 2.0
  /// is "" as the null threshold says. Throws TextError for the first context without words, as encode() does.
  [[nodiscard]] std::vector<std::vector<ExtractedAnswer>> answer(const std::vector<TaskInput>& inputs,
                                                                 int64_t top_k = 1) const;
  /// Calls visit(i, answer) for each input, with the answer of the model's kind: a std::vector of
  /// LabelScore, WordLabel or ExtractedAnswer.
  template <class Visit>
  void visit_answers(std::span<const EncodedInput> inputs, int64_t top_k, const Visit& visit) const {
    const auto visit_all = [&](const auto& answers) {
      for (size_t i = 0; i < inputs.size(); ++i) visit(i, answers[i]);
    };
    if (kind() == TaskKind::kTokenClassification) {
      visit_all(tags_of(inputs));
    } else if (kind() == TaskKind::kQuestionAnswering) {
      visit_all(answers_of(inputs, top_k));
    } else {
      visit_all(classes_of(inputs, top_k));
    }
  }

 private:
  [[nodiscard]] std::vector<EncodedInput> encode_all(const std::vector<TaskInput>& inputs) const;
  [[nodiscard]] std::vector<float> logits_of(const TaskFeatures& features) const;
  [[nodiscard]] std::vector<std::vector<LabelScore>> classes_of(std::span<const EncodedInput> inputs,
                                                                int64_t top_k) const;
  [[nodiscard]] std::vector<std::vector<WordLabel>> tags_of(std::span<const EncodedInput> inputs) const;
  [[nodiscard]] std::vector<std::vector<ExtractedAnswer>> answers_of(std::span<const EncodedInput> inputs,
                                                                     int64_t top_k) const;

  PredictorOptions options_;
  TaskDefinition task_;
  TaskDataConfig config_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  TaskInference model_;
};

}  // namespace bert
