// The wishes of a caller about an answer. Names as in Hugging Face's pipelines.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/tasks/entity_groups.h"
#include "data/config.h"

namespace bert {

/// The tasks of a model. Those from kTextClassification on need the head of a task.
enum class Task : uint8_t {
  kFillMask,
  kFeatures,
  kEmbedding,
  kSimilarity,
  kTextClassification,
  kTokenClassification,
  kQuestionAnswering,
  kRerank
};
/// The tasks of sentence encoders and of rerankers, by name.
inline constexpr const char *kEmbeddingTask = "embedding", *kRerankTask = "rerank";
inline std::span<const char* const> names_of(Task /*type*/) {
  static constexpr std::array<const char*, 8> kNames = {
      "fill-mask",          "features", kEmbeddingTask, "similarity", "text-classification", "token-classification",
      "question-answering", kRerankTask};
  return kNames;
}
constexpr bool is_finetuned(Task task) { return task >= Task::kTextClassification; }

/// From the logits of a text's classes to scores. kDefault: softmax; sigmoid for labels that are independent; none for
/// numbers.
enum class FunctionToApply : uint8_t { kDefault, kSigmoid, kSoftmax, kNone };
inline std::span<const char* const> names_of(FunctionToApply /*type*/) {
  static constexpr std::array<const char*, 4> kNames = {"default", "sigmoid", "softmax", "none"};
  return kNames;
}

/// Words for a [MASK] where nobody says how many, as in transformers' pipeline.
inline constexpr int64_t kDefaultFillers = 5;

struct AnswerOptions {
  std::optional<int64_t> top_k = {};  // empty: 5 words for a [MASK], all labels that are independent, else 1
  std::vector<int32_t> targets = {};  // for a [MASK]: the ids of the words that are compared; empty: all
  FunctionToApply function_to_apply = FunctionToApply::kDefault;
  Aggregation aggregation = Aggregation::kNone;       // of labels of words
  std::vector<std::string> ignore_labels = {"O"};     // of entities
  std::optional<int64_t> max_answer_len = {};         // tokens of an answer; empty: as the model was fine-tuned
  std::optional<bool> handle_impossible_answer = {};  // an answer may be "": the context has none; empty: as the model
  std::optional<LongTexts> long_texts = {};           // empty: as the predictor
  std::optional<bool> cut_at_begin = {};  // a text that is too long loses its begin, or its end; empty: as the model
  int64_t max_second_tokens = 0;          // of the second text of a pair, whose rest is left out; 0: all
  // Of the windows of a long context, or of a long text's words, which then has windows.
  std::optional<int64_t> max_seq_len = {};       // tokens of a window, at most; empty: as the model
  std::optional<int64_t> max_question_len = {};  // tokens of the question, at most; empty: as the model
  std::optional<int64_t> overlap = {};           // tokens that two neighbours share; empty: as the predictor
  int64_t most_window_tokens = std::numeric_limits<int64_t>::max();  // of all windows; more: TooManyTokens
  // Of the vector of a text.
  std::optional<bool> normalize = {};           // to length 1; empty: as the model
  int64_t dimensions = 0;                       // the first ones are taken (Matryoshka); 0: all
  std::optional<std::string> prompt = {};       // put before the text; empty: that of prompt_name
  std::optional<std::string> prompt_name = {};  // one of the model's prompts; empty: its default
  bool of_tokens = false;                       // a vector for each token instead, that of the last layer
};

}  // namespace bert
