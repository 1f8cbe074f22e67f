// What a server asks of a model.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <vector>

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
};

/// All functions are called by many threads at once.
class Model {
 public:
  virtual ~Model() = default;
  /// Called once by each thread that will call answer().
  virtual void enter_thread() const {}
  /// Tokenises an input. Throws TextError (app/inference/encoded_text.h) for one without an answer.
  [[nodiscard]] virtual std::shared_ptr<const ModelText> encode(const ModelInput& input, int64_t top_k) const = 0;
  /// An answer for each text of encode().
  [[nodiscard]] virtual std::vector<std::shared_ptr<const Answer>> answer(const ModelTexts& texts,
                                                                          int64_t top_k) const = 0;
  /// The tokens of a text as the model sees them.
  [[nodiscard]] virtual TextTokens tokenize(const std::string& text) const = 0;
  /// The `top_k` of a question that gives none; 0: it means nothing to the model.
  [[nodiscard]] virtual int64_t default_top_k() const = 0;
  /// The same where Hugging Face's inference API is asked for.
  [[nodiscard]] virtual int64_t hugging_face_top_k() const { return default_top_k(); }
  /// True if that API answers one text with a list of one.
  [[nodiscard]] virtual bool hugging_face_lists_one() const { return false; }
  [[nodiscard]] virtual InputForm form() const = 0;
};

}  // namespace bert
