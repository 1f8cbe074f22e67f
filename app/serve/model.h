// What a server asks of a model.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace bert {

/// A text that the model has no answer for. `index` is its place among the texts of the call.
struct BadText : std::runtime_error {
  BadText(size_t text, const std::string& message) : std::runtime_error(message), index(text) {}
  size_t index;
};

/// The answer for one text.
class Answer {
 public:
  virtual ~Answer() = default;
  /// The object that `bert predict` prints.
  [[nodiscard]] virtual nlohmann::ordered_json as_predict() const = 0;
  /// The value that Hugging Face's pipeline of the task gives for one text.
  [[nodiscard]] virtual nlohmann::ordered_json as_hugging_face() const = 0;
};

/// The work that a text makes.
struct TextCost {
  int64_t tokens = 0;        // that are computed
  int64_t answer_bytes = 0;  // of the answer as JSON, about
};

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
  /// Throws BadText with index 0 for a text that answer() would refuse.
  [[nodiscard]] virtual TextCost cost(const std::string& text, int64_t top_k) const = 0;
  /// An answer for each text. Throws BadText for the first text without one, before it computes any.
  [[nodiscard]] virtual std::vector<std::shared_ptr<const Answer>> answer(const std::vector<std::string>& texts,
                                                                          int64_t top_k) const = 0;
  /// The tokens of a text as the model sees them.
  [[nodiscard]] virtual TextTokens tokenize(const std::string& text) const = 0;
  /// True if `top_k` means something to the model: it fills masks.
  [[nodiscard]] virtual bool has_top_k() const = 0;
};

}  // namespace bert
