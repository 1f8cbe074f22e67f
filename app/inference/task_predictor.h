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
  bool pair = false;  // also where `second` has no tokens: [CLS] text [SEP] [SEP], as transformers' tokenizers give it
};

/// An input as the sequences of its tokens.
struct EncodedInput {
  TaskInput input;
  TaskFeatures features;
  AnswerOptions options;
  bool cut = false;  // the sequences have not all tokens of the text
  /// The tokens that are computed, special ones included.
  [[nodiscard]] int64_t tokens() const;
};

/// A class of a text. Of a model of numbers `score` is the number, and a number alone has no `label`.
struct LabelScore {
  std::string label;
  double score = 0;  // probability
};

/// The classes or the numbers of a text. kBest: one class. kList: classes, best first. kNumbers: in the model's order.
struct TextScores {
  enum class Form : uint8_t { kBest, kList, kNumbers };
  Form form = Form::kBest;
  std::vector<LabelScore> scores;
};

/// A word with the best class of its first token. White space, punctuation and ideographs end a word.
struct WordLabel {
  std::string word, label;
  double score = 0;            // probability
  int64_t begin = 0, end = 0;  // characters of the text: the word is [begin, end)
};

/// The classes of a text's words, and the entities that AnswerOptions::aggregation makes of them.
struct TaggedText {
  std::vector<WordLabel> words;
  std::vector<Entity> entities;
};

struct ExtractedAnswer {
  std::string answer;           // a part of the context; "": SQuAD 2.0, the context has no answer
  double score = 0;             // probability among the n best
  double span_probability = 0;  // ScoredSpan: the score of transformers' pipeline
  int64_t begin = 0, end = 0;   // characters of the context: the answer is [begin, end)
};

/// A passage of rerank(): its place in the list, and its relevance to the query.
struct RankedPassage {
  size_t index = 0;
  double score = 0;
};

/// The logits of all sequences, or of texts with windows, as TaskFeatures describes, in batches of `options` (whose device
/// and dtype are those of `model`). `choices` sequences in a row belong to one example. Throws DataError for
/// WindowPooling::kAttention of a model without its weights.
std::vector<float> task_logits(const TaskInference& model, const TaskFeatures& features, int64_t choices,
                               WindowPooling pooling, const PredictorOptions& options);

/// Texts are tokenized and cut, or read in windows, as in fine-tuning (text_settings()), and packed without padding. A
/// longer context is read in windows, a longer sentence of token classification in parts; with LongTexts::kTruncate their
/// first alone. With kWindows a token's label is that of the window with most context around it: is_max_context(). Answers
/// are in the order of the inputs. Any number of threads may call one predictor at once.
class TaskPredictor {
 public:
  /// Copies the weights. Throws DataError if they are not those of the task's model, c10::Error for wrong options.
  TaskPredictor(const Pretrained& pretrained, const PredictorOptions& options);

  [[nodiscard]] TaskKind kind() const { return task_.kind; }
  [[nodiscard]] const Tokenizer& tokenizer() const { return *tokenizer_; }
  /// True if texts need markers around two entities (marked_text(), data/tasks/entity_markers.h).
  [[nodiscard]] bool marks_entities() const { return config_.entity_markers != EntityMarkers::kNone; }
  /// The labels of the model's outputs; empty for answers, and for a number alone.
  [[nodiscard]] const std::vector<std::string>& labels() const { return task_.labels; }
  /// The input for visit_answers(), which then tokenizes nothing. Throws TextError with index 0 for an input without an
  /// answer, TooManyTokens.
  [[nodiscard]] EncodedInput encode(TaskInput input, const AnswerOptions& options = {}) const;
  /// kClassification: the `top_k` best classes of each input, best first. kRegression: its numbers.
  [[nodiscard]] std::vector<TextScores> classify(const std::vector<TaskInput>& inputs,
                                                 const AnswerOptions& options = {}) const;
  /// kTokenClassification. Words without a token have no entry.
  [[nodiscard]] std::vector<TaggedText> tag(const std::vector<TaskInput>& inputs,
                                            const AnswerOptions& options = {}) const;
  /// kQuestionAnswering: the answer to each input, and after it the next best, at most `top_k` in all. The first of SQuAD 2.0
  /// is "" as the null threshold says. Throws TextError for the first context without words, as encode() does.
  [[nodiscard]] std::vector<std::vector<ExtractedAnswer>> answer(const std::vector<TaskInput>& inputs,
                                                                 const AnswerOptions& options = {}) const;
  /// True if the model has one output, which the functions below take for the relevance of a passage to a query.
  [[nodiscard]] bool is_reranker() const;
  /// The score of each pair of encode({.text = query, .second = passage}), as CrossEncoder of sentence-transformers
  /// gives it: the sigmoid of the logit, or the logit if the model says so. FunctionToApply::kSigmoid and kNone are one
  /// and the other in any case. Throws c10::Error unless is_reranker().
  [[nodiscard]] std::vector<double> scores(std::span<const EncodedInput> pairs) const;
  /// The passages, best first; the `top_k` best ones, or all. Throws as scores().
  [[nodiscard]] std::vector<RankedPassage> rerank(const std::string& query, const std::vector<std::string>& passages,
                                                  const AnswerOptions& options = {}) const;
  /// Calls visit(i, answer) for each input, with the answer of the model's kind: TextScores, TaggedText, or a vector of
  /// ExtractedAnswer.
  template <class Visit>
  void visit_answers(std::span<const EncodedInput> inputs, const Visit& visit) const {
    const auto visit_all = [&](const auto& answers) {
      for (size_t i = 0; i < inputs.size(); ++i) visit(i, answers[i]);
    };
    if (kind() == TaskKind::kTokenClassification) {
      visit_all(tags_of(inputs));
    } else if (kind() == TaskKind::kQuestionAnswering) {
      visit_all(answers_of(inputs));
    } else {
      visit_all(classes_of(inputs));
    }
  }

 private:
  [[nodiscard]] std::vector<EncodedInput> encode_all(const std::vector<TaskInput>& inputs,
                                                     const AnswerOptions& options) const;
  [[nodiscard]] std::vector<float> logits_of(const TaskFeatures& features) const;
  [[nodiscard]] TextScores scores_of(std::span<const float> logits, const AnswerOptions& options) const;
  [[nodiscard]] std::vector<TextScores> classes_of(std::span<const EncodedInput> inputs) const;
  [[nodiscard]] std::vector<TaggedText> tags_of(std::span<const EncodedInput> inputs) const;
  [[nodiscard]] std::vector<TaggedToken> tokens_of(const EncodedInput& input, std::span<const float> logits) const;
  [[nodiscard]] std::vector<std::vector<ExtractedAnswer>> answers_of(std::span<const EncodedInput> inputs) const;
  [[nodiscard]] std::vector<ExtractedAnswer> answers_of(const EncodedInput& input, std::span<const float> logits) const;

  PredictorOptions options_;
  TaskDefinition task_;
  const bool multi_label_, logit_scores_;
  TaskDataConfig config_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  TaskInference model_;
};

}  // namespace bert
