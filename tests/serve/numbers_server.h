// Models of a few lines whose answers are numbers, behind a server, for tests of its protocols.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "app/inference/encoded_text.h"
#include "app/serve/service.h"

namespace bert::testing {

struct NumbersText final : ModelText {
  std::vector<float> numbers;
  int64_t vectors = 1;
  std::vector<std::string> input = {};  // of kTextOrPair
};

class NumbersAnswer final : public Answer {
 public:
  explicit NumbersAnswer(NumbersText text) : text_(std::move(text)) {}
  [[nodiscard]] nlohmann::ordered_json as_predict() const override { return {{"numbers", text_.numbers}}; }
  [[nodiscard]] nlohmann::ordered_json as_hugging_face() const override {
    if (!text_.input.empty()) return text_.input;
    return text_.numbers;
  }
  [[nodiscard]] std::span<const float> numbers() const override { return text_.numbers; }
  [[nodiscard]] int64_t vectors() const override { return text_.vectors; }

 private:
  NumbersText text_;
};

/// The vector of a text is {1, its bytes / 2, -2}, or its ids; with of_tokens {1, 2, 3} and {4, 5, 6}. The score of a
/// pair is the share of "x" in the passage. kTextOrPair: the answer in the form of Hugging Face is the list of the text
/// and its pair. "unknown" has no answer, "broken" breaks the model.
class NumbersModel final : public Model {
 public:
  explicit NumbersModel(InputForm form) : form_(form) {}
  [[nodiscard]] std::shared_ptr<const ModelText> encode(const ModelInput& input,
                                                        const AnswerOptions& options) const override {
    if (input.text == "unknown") throw TextError(0, "the text is unknown");
    if (options.dimensions > 3) throw TextError(0, "dimensions: the model's vectors have 3");
    wishes = options;
    auto text = std::make_shared<NumbersText>();
    text->tokens = 4;
    if (form_ == InputForm::kTextOrPair) text->input = {input.text, input.second};
    if (input.text == "broken") return text;
    if (!input.ids.empty()) {
      text->numbers.assign(input.ids.begin(), input.ids.end());
    } else if (form_ == InputForm::kPair) {
      const auto found = std::count(input.second.begin(), input.second.end(), 'x');
      text->numbers = {static_cast<float>(found) / std::max(1.0F, static_cast<float>(input.second.size()))};
    } else if (options.of_tokens) {
      text->numbers = {1, 2, 3, 4, 5, 6};
      text->vectors = 2;
    } else {
      text->numbers = {1, static_cast<float>(input.text.size()) / 2, -2};
      if (options.dimensions > 0) text->numbers.resize(static_cast<size_t>(options.dimensions));
    }
    return text;
  }
  [[nodiscard]] std::vector<std::shared_ptr<const Answer>> answer(const ModelTexts& texts) const override {
    std::vector<std::shared_ptr<const Answer>> answers;
    for (const auto& each : texts) {
      const auto& text = dynamic_cast<const NumbersText&>(*each);
      if (text.numbers.empty()) throw std::runtime_error("the model is broken");
      answers.push_back(std::make_shared<NumbersAnswer>(text));
    }
    return answers;
  }
  [[nodiscard]] TextTokens tokenize(const ModelInput& input) const override { return {{input.text}, {7}}; }
  [[nodiscard]] std::vector<std::string> parameters() const override { return {"normalize", "dimensions", "truncate"}; }
  [[nodiscard]] std::optional<int32_t> find_token(const std::string& /*token*/) const override { return std::nullopt; }
  [[nodiscard]] InputForm form() const override { return form_; }
  [[nodiscard]] ModelFacts facts() const override {
    return {.max_tokens = 128, .dimensions = 3, .pooling = "mean", .labels = {"LABEL_0"}};
  }

  mutable AnswerOptions wishes;  // of the last text

 private:
  const InputForm form_;
};

struct Reply {
  int status = 0;
  std::string body;
  std::vector<HttpField> fields = {};
  [[nodiscard]] nlohmann::json value() const { return nlohmann::json::parse(body); }
};

struct NumbersServer {
  explicit NumbersServer(const std::string& task, ServiceOptions options = {})
      : service(
            [&] {
              options.name = "small";
              options.task = task;
              return options;
            }(),
            counts) {
    load(task);
  }
  /// Gives the service the model of place `index`.
  void load(const std::string& task, size_t index = 0) {
    auto made = std::make_unique<NumbersModel>(task == "rerank"                ? InputForm::kPair
                                               : task == "text-classification" ? InputForm::kTextOrPair
                                                                               : InputForm::kText);
    if (index == 0) model = made.get();
    service.set_model(std::move(made), index);
  }
  /// The answer, as a connection sends it.
  Reply ask(const ServerRequest& request) {
    ServerResponse response;
    try {
      service.check(request);
      response = service.answer(request);
    } catch (const HttpError& error) {
      response = service.refusal(request, error);
    } catch (const std::exception&) {
      response = service.refusal(request, HttpError(500, "internal error"));
    }
    if (response.next_part != nullptr) {
      for (std::string part = response.next_part(); !part.empty(); part = response.next_part()) response.body += part;
    }
    return {response.status, response.body, response.fields};
  }
  Reply post(const std::string& path, const std::string& body, const std::string& json_bytes = "") {
    return ask(
        {.method = "POST", .path = path, .content_type = "application/json", .json_bytes = json_bytes, .body = body});
  }
  Reply get(const std::string& path) { return ask({.method = "GET", .path = path}); }

  ConnectionCounts counts;
  NumbersModel* model = nullptr;
  Service service;
};

struct Refused {
  std::string path, body;
  int status;
  std::string part;  // of the message
};

/// The bytes of fp32, little-endian.
inline std::string as_bytes(std::span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

}  // namespace bert::testing
