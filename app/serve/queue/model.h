// What a server asks of a model.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "app/inference/answer_options.h"

namespace bert {

/// What a question asks about: a text, and for some tasks a second one.
struct ModelInput {
  std::string text;               // of question answering the context, of a reranker the query
  std::string second = {};        // the other text of a pair, the question, or the passage; "": none
  std::vector<int32_t> ids = {};  // of the model's vocabulary, instead of the text; of embedding alone
};

/// The inputs that a model takes.
enum class InputForm {
  kText,
  kTextOrPair,          // a text, or {"text", "text_pair"}
  kPair,                // {"text", "text_pair"}: a query and a passage
  kMarkedText,          // a text with marks around two entities, or {"text", "spans"}
  kQuestionAndContext,  // {"question", "context"}
};

/// The device of the model has failed, and the model can answer nothing any more.
struct ModelLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The answer for one text.
class Answer {
 public:
  virtual ~Answer() = default;
  /// The object that `bert predict` prints.
  [[nodiscard]] virtual nlohmann::ordered_json as_predict() const = 0;
  /// The value that Hugging Face's inference API gives for one text of a list.
  [[nodiscard]] virtual nlohmann::ordered_json as_hugging_face() const = 0;
  /// The vector of a text, those of its tokens one after the other, or the score of a pair; nothing of other answers.
  [[nodiscard]] virtual std::span<const float> numbers() const { return {}; }
  /// The vectors in numbers().
  [[nodiscard]] virtual int64_t vectors() const { return 1; }
};

/// An input that a model has tokenised, and the work that it makes.
struct ModelText {
  virtual ~ModelText() = default;
  int64_t tokens = 0;        // that are computed
  int64_t answer_bytes = 0;  // of the answer as JSON, about
};
using ModelTexts = std::vector<std::shared_ptr<const ModelText>>;

struct TextTokens {
  std::vector<std::string> tokens;
  std::vector<int64_t> ids;
  bool truncated = false;  // the text has more tokens, which the model does not read
};

/// The facts that clients ask of a model before they ask for answers.
struct ModelFacts {
  std::string dtype = "float32";  // of the weights, by its name in PyTorch, or int8
  int64_t max_tokens = 512;       // of a text
  int64_t dimensions = 0;         // of embedding: the numbers of a vector
  std::string pooling = {};       // of embedding
  std::vector<std::string> labels = {};
  bool truncates = true;  // a text that is too long is cut where the request does not say
};

/// All functions are called by many threads at once.
class Model {
 public:
  virtual ~Model() = default;
  /// Gives the calling thread, which calls answer() next, its part of the processor: `batches` are computed at once.
  virtual void share_processor(int64_t /*batches*/) const {}
  /// Tokenises an input. Throws TextError (app/inference/encoded_text.h) for one without an answer.
  [[nodiscard]] virtual std::shared_ptr<const ModelText> encode(const ModelInput& input,
                                                                const AnswerOptions& options) const = 0;
  /// An answer for each text of encode(), as its options say.
  [[nodiscard]] virtual std::vector<std::shared_ptr<const Answer>> answer(const ModelTexts& texts) const = 0;
  /// The tokens of an input that the model reads; those that are cut off are not among them.
  [[nodiscard]] virtual TextTokens tokenize(const ModelInput& input) const = 0;
  /// The parameters of a request that mean something to the model, by their names in Hugging Face's pipelines.
  [[nodiscard]] virtual std::vector<std::string> parameters() const = 0;
  /// The options of a request without parameters.
  [[nodiscard]] virtual AnswerOptions defaults() const { return {}; }
  /// The same where Hugging Face's inference API is asked for.
  [[nodiscard]] virtual AnswerOptions hugging_face_defaults() const { return defaults(); }
  /// The id of a token of the vocabulary; empty if there is none such.
  [[nodiscard]] virtual std::optional<int32_t> find_token(const std::string& token) const = 0;
  /// True if that API answers one text with a list of one.
  [[nodiscard]] virtual bool hugging_face_lists_one() const { return false; }
  [[nodiscard]] virtual InputForm form() const = 0;
  [[nodiscard]] virtual ModelFacts facts() const { return {}; }
  /// An input of the form that has an answer, for warm_up(); empty if there is no need.
  [[nodiscard]] virtual std::optional<ModelInput> example() const { return {}; }
};

}  // namespace bert
