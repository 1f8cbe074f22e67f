// What a server asks of a model.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "app/inference/answer_options.h"

namespace bert {

/// What a question asks about: a text, and for some tasks a second one.
struct ModelInput {
  std::string text;         // of question answering the context
  std::string second = {};  // the other text of a pair, or the question; "": none
};

/// The inputs that a model takes.
enum class InputForm {
  kText,
  kTextOrPair,          // a text, or {"text", "text_pair"}
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

/// All functions are called by many threads at once.
class Model {
 public:
  virtual ~Model() = default;
  /// Called once by each thread that will call answer().
  virtual void enter_thread() const {}
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
};

}  // namespace bert
