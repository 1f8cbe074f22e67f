// A model for tests of the server: the answer for a text is the text, its number of words is its number of tokens.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/inference/encoded_text.h"
#include "app/serve/queue/model.h"

namespace bert::testing {

class TextAnswer final : public Answer {
 public:
  TextAnswer(std::string text, int64_t top_k) : text_(std::move(text)), top_k_(top_k) {}
  [[nodiscard]] nlohmann::ordered_json as_predict() const override { return {{"text", text_}, {"top_k", top_k_}}; }
  [[nodiscard]] nlohmann::ordered_json as_hugging_face() const override { return text_; }

 private:
  std::string text_;
  int64_t top_k_;
};

struct FakeText final : ModelText {
  FakeText(std::string words, int64_t tokens_of_text) : text(std::move(words)) { tokens = tokens_of_text; }
  std::string text;
  int64_t top_k = 0;
};

/// A text "unknown" is refused by encode(). A text "broken" breaks the model. While the gate is closed, answer() waits.
class FakeModel final : public Model {
 public:
  [[nodiscard]] std::shared_ptr<const ModelText> encode(const ModelInput& input,
                                                        const AnswerOptions& options) const override {
    const std::string& text = input.text;
    if (text == "unknown") throw TextError(0, "the text is unknown", text);
    auto encoded = std::make_shared<FakeText>(text, 1 + std::count(text.begin(), text.end(), ' '));
    encoded->top_k = *options.top_k;
    encoded->answer_bytes = std::ssize(text) * encoded->top_k;
    return encoded;
  }
  [[nodiscard]] std::vector<std::shared_ptr<const Answer>> answer(const ModelTexts& encoded) const override {
    std::vector<std::string> texts;
    for (const auto& text : encoded) texts.push_back(dynamic_cast<const FakeText&>(*text).text);
    {
      std::unique_lock lock(mutex_);
      ++waiting_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return open_; });
      --waiting_;
      batches_.push_back(texts);
    }
    for (const std::string& text : texts)
      if (text == "broken") throw std::runtime_error("the model is broken");
    std::vector<std::shared_ptr<const Answer>> answers;
    for (const auto& text : encoded) {
      const auto& fake = dynamic_cast<const FakeText&>(*text);
      answers.push_back(std::make_shared<TextAnswer>(fake.text, fake.top_k));
    }
    return answers;
  }
  void share_processor(int64_t batches) const override {
    const std::lock_guard lock(mutex_);
    shares_.push_back(batches);
  }
  [[nodiscard]] TextTokens tokenize(const ModelInput& input) const override { return {{input.text}, {7}}; }
  [[nodiscard]] std::vector<std::string> parameters() const override { return {"top_k", "targets", "truncate"}; }
  [[nodiscard]] AnswerOptions defaults() const override { return {.top_k = 5}; }
  [[nodiscard]] std::optional<int32_t> find_token(const std::string& token) const override {
    return token == "cat" ? std::optional<int32_t>(7) : std::nullopt;
  }
  [[nodiscard]] InputForm form() const override { return InputForm::kText; }
  [[nodiscard]] std::optional<ModelInput> example() const override { return first; }

  std::optional<ModelInput> first;
  void set_open(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }
  /// Waits until `count` calls of answer() are at the gate.
  void wait_for_calls(int count) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= count; });
  }
  [[nodiscard]] std::vector<std::vector<std::string>> batches() const {
    const std::lock_guard lock(mutex_);
    return batches_;
  }
  /// Batches that were computed at once, as each batch was told.
  [[nodiscard]] std::vector<int64_t> shares() const {
    const std::lock_guard lock(mutex_);
    return shares_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int waiting_ = 0;
  mutable std::vector<std::vector<std::string>> batches_;
  mutable std::vector<int64_t> shares_;
  bool open_ = true;
};

}  // namespace bert::testing
